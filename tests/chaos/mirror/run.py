"""One run: write, kill, wait for quiet, compare."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.testing.waiting import eventually
from tests.chaos.mirror.comparing import Difference
from tests.chaos.mirror.stage import AROUND, ENGINES, ROLES, ROUTES, Stage
from tests.chaos.mirror.tables import APPEAR, PREPARE
from tests.chaos.mirror.writers import Writers
from tests.chaos.running import SOURCE

Say = Callable[[str], None]
NAMED_POINTS = (
    "postgres.copy.written@2",
    "postgres.stream.appended@15",
    "log.append.before_fsync@25",
    "destination.writing@3",
    "destination.committed@2",
    "route.before_ledger_commit@2",
)
"""Besides chance, the worst moments: each kills its process once, the nth time that a process gets there."""
LONGEST = 900.0
QUIET = 300.0
"""Seconds after the last kill for everything to be up and done: what was killed often is started again late."""


@dataclass(frozen=True)
class Reckoning:
    """What was done, and how source and mirrors compare."""

    kills: Counter[str]
    transactions: int
    interrupted: int
    records: int
    batches: Mapping[str, int]
    rows: Mapping[str, int]
    differences: list[Difference]
    books: Mapping[str, Mapping[str, Any]]
    failed: str
    complaints: list[str]
    ended_by_itself: list[int]
    exit_code: int
    seconds: float

    def faults(self) -> list[str]:
        """Everything that is not as it should be; empty if the mirrors are whole."""
        found = [line for one in self.differences for line in one.lines()]
        for route, book in self.books.items():
            wrong = {name: book[name] for name in ("lag", "failed", "waiting") if book[name]}
            if wrong or not book["adds_up"] or book["halted_at"]:
                found.append(f"the books of {route} do not balance: {dict(book)}")
        if self.failed:
            found.append(f"in the failed store: {self.failed[:2000]}")
        if self.ended_by_itself:
            found.append(f"penstock run ended without being killed, with {self.ended_by_itself}")
        if self.exit_code != 0:
            found.append(f"the clean stop at the end gave {self.exit_code}")
        found += [f"pgbench says: {complaint}" for complaint in self.complaints[:5]]
        return found


def chaos(
    folder: Path,
    seconds: float,
    seed: int,
    rate: int = 150,
    roles: Sequence[str] = ROLES,
    pause: float = 2.0,
    points: Sequence[str] = (),
    say: Say = lambda _: None,
) -> Reckoning:
    """Write for ``seconds`` at least, and until each of ``roles`` was hit.

    ``pause``: the longest from one hit to the next. ``points``: faults at which processes kill themselves besides.
    """
    began = time.monotonic()
    rng = random.Random(seed)
    stage = Stage(folder, faults=",".join(f"{point}=kill" for point in points))
    writers = Writers(stage.source.program("pgbench"), stage.source.url, folder, seed, rate)
    try:
        stage.start()
        writers.initialise()
        stage.ask(PREPARE)
        writers.start()
        stage.running.start()
        kills = _attack(stage, rng, seconds, roles, pause, say)
        writers.stop()
        kills.update(stage.fired())
        say("writing has ended; waiting for quiet")
        return _reckon(stage, writers, kills, began)
    finally:
        writers.stop()
        stage.end()


def _attack(
    stage: Stage, rng: random.Random, seconds: float, roles: Sequence[str], pause: float, say: Say
) -> Counter[str]:
    began = time.monotonic()
    kills: Counter[str] = Counter()
    around, engines = (_turns(rng, [role for role in group if role in roles]) for group in (AROUND, ENGINES))
    read, delivered = 0, dict.fromkeys(ROUTES, 0)
    late = False
    while (written := time.monotonic() - began) < seconds or len(kills) < len(roles) or not late:
        assert written < LONGEST, f"nothing is delivered any more (see {stage.running.log})"
        if not late and written > seconds / 3:
            stage.ask(APPEAR)
            late = True
            say(f"{written:5.1f} s: a new table appears")
        time.sleep(rng.uniform(0.0, pause))
        stage.keep_up()
        now, end = stage.batches(), stage.records()
        if all(now[route] > delivered[route] for route in ROUTES):
            role, delivered = next(engines), now
        else:
            role = next(around)
        if role == SOURCE:
            if end == read:
                continue
            read = end
        stage.disturb(role, rng)
        kills[role] += 1
        say(f"{time.monotonic() - began:5.1f} s: {role}")
    return kills


def _turns(rng: random.Random, roles: Sequence[str]) -> Iterator[str]:
    """Each role once, in an order of chance; then all of them again."""
    while True:
        yield from rng.sample(roles, len(roles))


def _reckon(stage: Stage, writers: Writers, kills: Counter[str], began: float) -> Reckoning:
    log = stage.running.log
    eventually(stage.source_is_read(), f"all changes are in the log (see {log})", QUIET, every=0.5)
    eventually(lambda: not any(stage.lags().values()), f"the routes have caught up (see {log})", QUIET, every=0.5)
    code = stage.running.stop()
    differences, rows = stage.differences()
    return Reckoning(
        kills=kills,
        transactions=writers.transactions,
        interrupted=writers.interrupted,
        records=stage.records(),
        batches=stage.batches(),
        rows=rows,
        differences=differences,
        books=stage.books(),
        failed=stage.penstock("failed", "list", "--json"),
        complaints=writers.complaints,
        ended_by_itself=stage.ended_by_itself,
        exit_code=code,
        seconds=time.monotonic() - began,
    )
