"""The reckoning: what was promised and what is there, once while orders are open, and once when all are closed."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.engine.operate.status import route_status
from penstock.engine.route_sources import control_source
from penstock.testing.waiting import eventually
from tests.chaos.scene import PATIENCE, Scene
from tests.chaos.waiting.expected import Expected, Logged, expect, read_as, read_log
from tests.chaos.waiting.project import HOLDING, ORDERS, TIMED, UNIQUE, HoldingProject
from tests.chaos.waiting.promises import broken_promises
from tests.chaos.waiting.shopper import Shopper

SHOWN = 10


@dataclass(frozen=True)
class Reckoning:
    """What was sent, and everything that is not as it should be, in the words of a person."""

    sent: int
    acknowledged: int
    logged: int
    repeated: int
    """Events whose key had come before."""
    waiting: int
    """Events of orders that were open when the attack was over."""
    removed_segments: int
    rows: Mapping[str, int]
    wrong: Sequence[str]
    struck: Counter[str]
    exit_codes: Sequence[int]
    seconds: float

    @property
    def whole(self) -> bool:
        return not self.wrong and not any(self.exit_codes)


def reckon(scene: Scene, project: HoldingProject, shopper: Shopper, struck: Counter[str], began: float) -> Reckoning:
    """Nobody posts any more. Looks once while orders are open; then the log may lose all that no route needs, the
    orders are closed, and nothing may wait any more."""
    _keep_trying(scene, shopper.post_one)
    codes = [_settle(scene)]
    logged = read_log(scene)
    first = _expect(scene, project, shopper, logged)
    wrong = [f"with open orders: {line}" for line in _wrong(scene, project, shopper, first)]
    removed = _remove_all_that_is_free(scene)
    project.start()
    _keep_trying(scene, lambda: shopper.close({shopper.events[waits.event_id].order for waits in first.waiting}))
    codes.append(_settle(scene))
    last = _expect(scene, project, shopper, sorted({*logged, *read_log(scene)}))
    if last.waiting:
        wrong.append(f"the test has left orders open: {_some(each.event_id for each in last.waiting)}")
    wrong += [f"with closed orders: {line}" for line in _wrong(scene, project, shopper, last)]
    return Reckoning(
        sent=len(shopper.sent),
        acknowledged=len(shopper.acknowledged),
        logged=len(last.in_order),
        repeated=len(last.in_order) - len(last.rows[UNIQUE]),
        waiting=len(first.waiting),
        removed_segments=removed,
        rows={route: counts.total() for route, counts in project.rows().items()},
        wrong=wrong,
        struck=struck,
        exit_codes=codes,
        seconds=time.monotonic() - began,
    )


def _expect(scene: Scene, project: HoldingProject, shopper: Shopper, logged: Sequence[Logged]) -> Expected:
    known = [UNIQUE] if project.by_id else [UNIQUE, ORDERS]
    return expect(logged, shopper.events, {route: read_as(scene, route, logged) for route in known})


def _settle(scene: Scene) -> int:
    """Wait until everything has arrived that can, and stop."""
    scene.wait_until_all_is_delivered()

    def time_has_come() -> bool:
        scene.project.keep_up()
        with scene.opened() as pipeline:
            return TIMED not in scene.project.routes or route_status(pipeline, TIMED).totals.waiting == 0

    eventually(time_has_come, f"what waits for a time goes on (see {scene.project.log})", PATIENCE, every=0.5)
    scene.wait_until_all_is_delivered()
    return scene.project.stop()


def _keep_trying(scene: Scene, post: Callable[[], object]) -> None:
    def posted() -> bool:
        scene.project.wait_until_ready()
        try:
            post()
        except Exception:
            return False
        return True

    eventually(posted, f"the collector takes events (see {scene.project.log})")


def _wrong(scene: Scene, project: HoldingProject, shopper: Shopper, expected: Expected) -> Iterator[str]:
    rows = project.rows()
    for route, counts in rows.items():
        for word, found in (
            ("lost", expected.rows[route] - counts.keys()),
            ("not to be there", counts.keys() - expected.rows[route]),
            ("doubled", {event_id for event_id, count in counts.items() if count > 1}),
        ):
            if found:
                yield f"{route}: {len(found)} {word}: {_some(found)}"
    for promise, found in broken_promises(shopper, rows):
        yield f"{promise}: {_some(found)}"
    yield from _wrong_books(scene, project, expected, rows)


def _wrong_books(
    scene: Scene, project: HoldingProject, expected: Expected, rows: Mapping[str, Counter[str]]
) -> Iterator[str]:
    """What ``penstock status`` and the ledger say that is not so."""
    status = json.loads(project.penstock("status", "--json"))
    read = len(expected.in_order)
    for route in status["routes"]:
        name = route["route"]
        waiting = len(expected.waiting) if name == ORDERS else 0
        true = {"failed": 0, "under_way": 0, "behind": _unread_ticks(scene, name), "waiting": waiting, "adds_up": True}
        if name not in HOLDING or not project.by_id:
            # A route that has lost its checkpoint has read and loaded some of it again.
            loaded = rows[name].total()
            true |= {"in": read, "loaded": loaded, "skipped": read - loaded - waiting}
        for what, is_ in true.items():
            if route[what] != is_:
                yield f"{name}: {what} is {route[what]}, should be {is_}"
    holds = expected.holds
    with scene.opened() as pipeline:
        for name, true_holds in ((ORDERS, holds), (TIMED, {})):
            if (held := pipeline.ledger.held(name)) != true_holds:
                yield f"{name}: the log is held from {held} on, should be from {true_holds}"
        for partition, offset in holds.items():
            if pipeline.log.first_offset(partition) > offset:
                yield f"partition {partition} of the log has lost what is needed from {offset} on"


def _unread_ticks(scene: Scene, route: str) -> int:
    """A tick may come after the last batch."""
    with scene.opened() as pipeline:
        read = pipeline.ledger.offsets(route)
        ticks = pipeline.log.partitions([control_source(route)])
        return sum(pipeline.log.bounds(p).end - (read[p].committed if p in read else 0) for p in ticks)


def _remove_all_that_is_free(scene: Scene) -> int:
    with scene.opened() as pipeline:
        return len(pipeline.log.apply_retention(pipeline.floors(), datetime.now(UTC) + timedelta(days=1000)))


def _some(event_ids: Iterable[str]) -> str:
    found = sorted(event_ids)
    return f"{', '.join(found[:SHOWN])}{', ...' if len(found) > SHOWN else ''}"
