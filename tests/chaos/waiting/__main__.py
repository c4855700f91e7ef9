"""The long form. Prints what was killed and what became of every event; exits 1 if one is not where it should be."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.chaos.run import KILLS
from tests.chaos.waiting.run import NAMED_POINTS, chaos, misfortunes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="kills in all, the named points included")
    parser.add_argument(
        "--misfortunes",
        type=int,
        metavar="N",
        help="instead of kills alone: N kills, frozen processes, steps of the clock, full disks, lost checkpoints",
    )
    parser.add_argument("--freeze", type=float, default=60.0, metavar="SECONDS", help="how long processes are frozen")
    parser.add_argument("--only", metavar="WORD", help="only those misfortunes whose name has this word")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="by default another each time")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no process stays behind
    folder = Path(tempfile.mkdtemp(prefix="penstock-waiting-"))
    print(f"seed {options.seed}, folder {folder}", flush=True)
    run = partial(chaos, folder, seed=options.seed, settle_every=4, say=partial(print, flush=True))
    if options.misfortunes is None:
        result = run(KILLS, max(0, options.kills - len(NAMED_POINTS)))
    else:
        chosen = [each for each in misfortunes(options.freeze) if (options.only or "") in each.name]
        result = run(chosen, options.misfortunes, points=())
    print(f"struck in {result.seconds:.0f} s, seed {options.seed}: {result.struck.total()} times")
    for name, times in sorted(result.struck.items()):
        print(f"  {name}: {times}")
    print(f"sent {result.sent:,}, acknowledged {result.acknowledged:,}, in the log {result.logged:,},")
    print(f"{result.repeated:,} with a key that had come before, {result.waiting:,} of orders that were still open")
    print(f"segments that the log could lose meanwhile: {result.removed_segments}; rows {dict(result.rows)}")
    for line in result.wrong:
        print(f"WRONG: {line}")
    print(f"exit codes {list(result.exit_codes)}")
    print("whole" if result.whole else f"NOT WHOLE, see {folder}")
    if result.whole:
        shutil.rmtree(folder)
    return 0 if result.whole else 1


if __name__ == "__main__":
    sys.exit(main())
