"""``make chaos``: the long form. Prints what was killed and what became of every event; exits 1 if one is missing."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import NAMED_POINTS, chaos


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="kills in all, the named points included")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    result = chaos(folder, max(0, options.kills - len(NAMED_POINTS)), options.seed, settle_every=4, say=print)
    print(f"kills: {dict(result.kills)} in {result.seconds:.0f} s")
    print(f"sent {result.sent:,}, acknowledged {result.acknowledged:,}, rows {result.rows:,}")
    print(f"lost {len(result.lost)}, doubled {len(result.doubled)}, never sent {len(result.unknown)}")
    print(f"one more event passed: {result.last_event_arrived}; books: {result.totals}; exit code {result.exit_code}")
    print("whole" if result.whole else f"NOT WHOLE, see {folder}")
    return 0 if result.whole else 1


if __name__ == "__main__":
    sys.exit(main())
