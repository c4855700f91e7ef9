"""``make chaos``: the long form. Prints what was killed and what became of every event; exits 1 if one is missing."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import KILLS, MISFORTUNES, NAMED_POINTS, chaos


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="kills in all, the named points included")
    parser.add_argument(
        "--misfortunes",
        type=int,
        metavar="N",
        help="instead of kills: N frozen processes, steps of the"
        " clock, full disks, records that end their worker, older copies of the data put back",
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    if options.misfortunes is None:
        hazards, count = KILLS, max(0, options.kills - len(NAMED_POINTS))
    else:
        hazards, count = MISFORTUNES, options.misfortunes
    result = chaos(folder, hazards, count, options.seed, settle_every=4, say=lambda line: print(line, flush=True))
    print(f"struck: {dict(result.struck)} in {result.seconds:.0f} s")
    print(f"sent {result.sent:,}, acknowledged {result.acknowledged:,}, rows {result.rows:,}")
    print(
        f"lost {len(result.lost)}, doubled {len(result.doubled)}, never sent {len(result.unknown)},"
        f" not in the books {result.uncounted}"
    )
    print(f"one more event passed: {result.last_event_arrived}; books: {result.totals}; exit code {result.exit_code}")
    print("whole" if result.whole else f"NOT WHOLE, see {folder}")
    return 0 if result.whole else 1


if __name__ == "__main__":
    sys.exit(main())
