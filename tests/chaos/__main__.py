"""``make chaos``: the long form. Prints what was killed and what became of every event; exits 1 if one is missing."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.chaos.run import KILLS, NAMED_POINTS, chaos, misfortunes
from tests.support.postgres import postgres


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="kills in all, the named points included")
    parser.add_argument(
        "--misfortunes",
        type=int,
        metavar="N",
        help="instead of kills alone: N kills, frozen processes, steps of the clock, full disks, locked tables, records"
        " that end their worker, older copies of the data put back",
    )
    parser.add_argument("--freeze", type=float, default=60.0, metavar="SECONDS", help="how long processes are frozen")
    parser.add_argument("--only", metavar="WORD", help="only those misfortunes whose name has this word")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="by default another each time")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    print(f"seed {options.seed}, folder {folder}", flush=True)
    run = partial(chaos, folder, seed=options.seed, settle_every=4, say=lambda line: print(line, flush=True))
    if options.misfortunes is None:
        result = run(KILLS, max(0, options.kills - len(NAMED_POINTS)))
    else:
        chosen = [each for each in misfortunes(options.freeze) if (options.only or "") in each.name]
        with postgres() as url:
            result = run(chosen, options.misfortunes, points=(), database=url)
    print(f"struck in {result.seconds:.0f} s, seed {options.seed}:")
    for name, times in sorted(result.struck.items()):
        print(f"  {name}: {times}")
    print(f"sent {result.sent:,}, acknowledged {result.acknowledged:,}, rows {dict(result.rows)}")
    for what in ("lost", "doubled", "unknown", "stale", "wrongly_failed"):
        found = sorted(getattr(result, what))
        print(f"{what}: {len(found)} {found[:10]}")
    print(f"books: {result.wrong_books or 'right'}")
    print(f"one more event passed: {result.last_event_arrived}; exit code {result.exit_code}")
    print("whole" if result.whole else f"NOT WHOLE, see {folder}")
    if result.whole:
        shutil.rmtree(folder)
    return 0 if result.whole else 1


if __name__ == "__main__":
    sys.exit(main())
