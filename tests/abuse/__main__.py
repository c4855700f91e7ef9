"""``make abuse``: the long form. Prints a table; exits 1 if the honest client suffered or memory was not bounded."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.abuse.attacks import attacks
from tests.abuse.run import FLOOR_MS, HEALTH_MS, MAX_RATIO, RSS_LIMIT_MIB, TITLE, abuse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(attacks()), help="which attacks; all of them if none is named")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each one goes on")
    options = parser.parse_args()
    print(TITLE)
    with tempfile.TemporaryDirectory(prefix="penstock-abuse-") as folder:
        rows = abuse(Path(folder), options.names, options.seconds, between=3.0)
    harmful = [row.attack for row in rows if not row.harmless]
    slow = [row.attack for row in rows if row.ratio > MAX_RATIO]
    deaf = [row.attack for row in rows if max(row.attacked.health, default=float("inf")) > HEALTH_MS]
    print(f"\nrefused or too much memory (above {RSS_LIMIT_MIB} MiB): {', '.join(harmful) or 'none'}")
    print(f"p99 above {MAX_RATIO:g} times (of at least {FLOOR_MS:g} ms): {', '.join(slow) or 'none'}")
    print(f"/healthz above {HEALTH_MS:g} ms: {', '.join(deaf) or 'none'}")
    return 1 if harmful or slow or deaf else 0


if __name__ == "__main__":
    sys.exit(main())
