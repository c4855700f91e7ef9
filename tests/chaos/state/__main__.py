"""The long form. Prints what was killed and what the triggers saw; exits 1 if anything is not as it should be."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.chaos.state.fairness import WITHIN, fairness
from tests.chaos.state.named_points import NamedPoints
from tests.chaos.state.outage import Outage, outage
from tests.chaos.state.reckoning import Reckoning
from tests.chaos.state.run import ENGINE_POINTS, NAMED_POINTS, chaos, hazards, running_server

say = partial(print, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="kills in all, the named points included")
    parser.add_argument(
        "--points", type=int, metavar="TIMES", help="instead: kills of the engine at each named point, so often"
    )
    parser.add_argument("--outage", type=float, metavar="SECONDS", help="instead: the database is away for so long")
    parser.add_argument("--fairness", action="store_true", help="instead: how long sources wait for each other")
    parser.add_argument("--sources", type=int, help="how many there are")
    parser.add_argument("--rate", type=float, help="bundles per second")
    parser.add_argument("--seconds", type=float, default=40.0, help="of each round of fairness")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="by default another each time")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no process stays behind
    folder = Path(tempfile.mkdtemp(prefix="penstock-state-"))
    say(f"seed {given.seed}, folder {folder}")
    with running_server() as server:
        if given.fairness:
            sources = given.sources or 2000
            found = fairness(folder, server, sources, sources / (given.rate or 100.0), given.seconds, 3, say)
            say(f"p95 beside both is {found.ratio:.2f} x that of the others alone; should be {WITHIN} x at most")
            wrong: Sequence[str] = [] if found.is_fair else ["it is not fair"]
        elif given.outage is not None:
            seen = outage(folder, server, given.outage, given.rate or 1000.0, given.sources or 100, given.seed, say)
            _print_outage(seen)
            wrong = list(seen.wrong())
        else:
            chosen, count = hazards(server), max(0, given.kills - len(NAMED_POINTS))
            if given.points is not None:
                chosen, count = [NamedPoints(ENGINE_POINTS)], given.points - 1
            sources, rate = given.sources or 40, given.rate or 200.0
            result = chaos(folder, server, chosen, count, given.seed, 4, say, sources=sources, rate=rate)
            _print_reckoning(result)
            wrong = result.wrong
    for line in wrong:
        say(f"WRONG: {line}")
    say(f"NOT WHOLE, see {folder}" if wrong else "whole")
    if not wrong:
        shutil.rmtree(folder)
    return 1 if wrong else 0


def _print_reckoning(result: Reckoning) -> None:
    say(f"struck in {result.seconds:.0f} s: {result.struck.total()} times")
    for name, times in sorted(result.struck.items()):
        say(f"  {name}: {times}")
    say(f"{result.posted:,} bundles acknowledged, {result.repeated} requests sent again, {result.logged:,} in the log,")
    say(f"{result.writes:,} writes, {result.row_changes:,} changes of rows; exit code {result.exit_code}")


def _print_outage(seen: Outage) -> None:
    say(f"away for {seen.seconds:.0f} s, in which {seen.posted:,} bundles came ({seen.posted / seen.seconds:,.0f}/s)")
    say(f"caught up {seen.caught_up:.1f} s after it was back")
    times = sorted(set(seen.writes.values()))
    say(f"{len(seen.writes):,} sources and kinds were written, each {' or '.join(map(str, times))} times")
    for name, each in (("first", seen.memory[0]), ("last", seen.memory[-1])):
        parts = ", ".join(f"{role} {mib:,.0f}" for role, mib in sorted(each.items()))
        say(f"MiB in the {name} second: {sum(each.values()):,.0f} ({parts})")
    say(f"memory grew {seen.growth:.2f} x from the first third to the last")
    _print_reckoning(seen.reckoning)


if __name__ == "__main__":
    sys.exit(main())
