"""`max_hold_bytes`: the oldest of what waits goes on, until the log keeps less for the rest. Without Spark."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.ledger import Act
from penstock.engine.pipeline import Pipeline
from penstock.engine.route_sources import control_source
from penstock.engine.stateful import shard_home
from penstock.engine.stateful.control_records import released_rows
from penstock.engine.stateful.hold_limit import held_bytes, release_point, up_to
from penstock.engine.stateful.route_control import RouteControl
from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import Stretch
from penstock.record import Record, entries
from tests.engine.projects import pipeline
from tests.engine.stateful.in_process import Store, run_tasks

LIMIT = 20_000
CONFIG = f"""\
name: shop
log: {{segment_bytes: 4KB}}
sources: {{web: {{type: file, path: ./web.ndjson}}, app: {{type: file, path: ./app.ndjson}}}}
routes:
  out:
    from: [web, app]
    max_hold_bytes: {LIMIT}
    steps: [{{gather: {{key: k, until: done, at_most: 1h}}}}]
    to: {{type: file, path: ./out}}
"""
ROUTE = "out"


@pytest.fixture(autouse=True)
def no_state_of_others() -> Iterator[None]:
    shard_home._memories.clear()
    yield
    shard_home._memories.clear()


class Run:
    """A route of which each batch takes all that is in the log."""

    def __init__(self, folder: Path, config: str = CONFIG) -> None:
        self.opened: Pipeline = pipeline(folder, config)
        self.store = Store()
        self.sent = 0
        self.went_on: list[int] = []

    def send(self, source: str, key: object, closes: bool = False) -> None:
        """One append of about a kilobyte."""
        pad = random.Random(self.sent).randbytes(480).hex()
        data = json.dumps({"n": self.sent, "k": key, "done": closes, "pad": pad}).encode()
        with self.opened.log.writer(source) as writer:
            writer.append(entries([Record(data, namespace=source)]))
        self.sent += 1

    def deliver(self) -> list[int]:
        """The numbers that go on with a batch of what was sent."""
        opened, plan = self.opened, self.opened.plan(ROUTE)
        ends = {p: opened.log.bounds(p).end for p in opened.log.partitions(plan.sources)}
        starts = opened.ledger.open_route(ROUTE, dict.fromkeys(ends, 0))
        stretches = [Stretch(p, starts[p].committed, end) for p, end in ends.items() if starts[p].committed < end]
        report = run_tasks(plan, opened.log, self.store, stretches)
        lines = [line for part in report.parts for line in Path(part.path).read_text().splitlines()]
        Delivery(plan, plan.destination(), opened.log, opened.ledger, opened.failed_store, Event()).deliver(report)
        gone = sorted(json.loads(line)["n"] for line in lines)
        self.went_on += gone
        return gone

    def look(self) -> None:
        """As the engine does every second; each time as if it had just started."""
        RouteControl(self.opened.log, self.opened.ledger, self.opened.plan(ROUTE)).tell_once()

    @property
    def releases(self) -> int:
        log = self.opened.log
        controls = [batch for p in log.partitions([control_source(ROUTE)]) for batch in log.read(p, 0)]
        return sum(len(released_rows(batch)) for batch in controls)

    @property
    def kept(self) -> int:
        return held_bytes(self.opened.log, self.opened.ledger.holding(ROUTE).ranges)


def test_a_route_over_its_limit_lets_the_oldest_go_on_and_keeps_less(tmp_path: Path) -> None:
    run = Run(tmp_path)
    most = 0
    for number in range(60):
        run.send(("web", "app")[number % 3 == 0], f"key-{number}")
        before = run.releases
        run.look()
        run.deliver()
        most = max(most, run.kept)
        if run.releases > before:
            assert run.kept <= 0.8 * LIMIT + 2000, "what has come since is all that there is more"
    assert 0.8 * LIMIT < most <= LIMIT + 2000
    assert run.went_on == list(range(len(run.went_on))), "the oldest go on first"
    assert 30 < len(run.went_on) < 60
    totals = run.opened.ledger.totals(ROUTE)
    assert (totals.loaded, totals.waiting) == (len(run.went_on), 60 - len(run.went_on))
    assert 3 < run.releases < 12


def test_one_old_item_that_keeps_everything_goes_on_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path)
    run.send("app", "old")
    for number in range(30):
        run.send("app", number, closes=True)
    run.send("web", "new")
    assert len(run.deliver()) == 30
    assert run.kept > LIMIT
    counted = "penstock_hold_limit_releases_total"
    before = REGISTRY.get_sample_value(counted, {"route": ROUTE}) or 0
    with caplog.at_level(logging.WARNING, "penstock"):
        run.look()
    assert run.deliver() == [0]
    assert run.kept < 2000
    assert run.opened.ledger.totals(ROUTE).waiting == 1
    # It is counted, said, and on record.
    assert REGISTRY.get_sample_value(counted, {"route": ROUTE}) == before + 1
    assert f"more than `max_hold_bytes` ({LIMIT})" in caplog.text
    (act,) = run.opened.ledger.interventions(ROUTE)
    assert (act.act, act.who, act.start) == (Act.RELEASE, "penstock", 0)
    assert act.reason.startswith("max_hold_bytes: the log kept ")
    assert str(LIMIT) in act.reason
    assert 0 < act.end <= 31


def test_nothing_is_released_a_second_time_before_the_route_has_read_it(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for number in range(30):
        run.send("web", number)
    run.deliver()
    for _ in range(3):
        run.look()
        run.send("web", "more")
    assert (run.releases, len(run.opened.ledger.interventions(ROUTE))) == (1, 1)
    assert run.deliver() != []
    assert run.kept <= LIMIT
    run.look()
    assert run.releases == 1


def test_a_running_engine_does_not_release_twice_either(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for number in range(30):
        run.send("web", number)
    run.deliver()
    control = RouteControl(run.opened.log, run.opened.ledger, run.opened.plan(ROUTE))
    for _ in range(3):
        control.tell_once()
    assert run.releases == 1
    run.deliver()
    for number in range(30):
        run.send("web", 100 + number)
    run.deliver()
    control.tell_once()
    assert run.releases == 2


def test_without_a_limit_everything_waits(tmp_path: Path) -> None:
    run = Run(tmp_path, CONFIG.replace(f"    max_hold_bytes: {LIMIT}\n", ""))
    for number in range(30):
        run.send("web", number)
    run.deliver()
    run.look()
    assert run.releases == 0
    assert run.kept > LIMIT


appends = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 600)), min_size=1, max_size=25)
"""Source, records and bytes of each."""


@given(appends, st.lists(st.integers(0, 10), min_size=3, max_size=3), st.floats(0, 1.2))
def test_the_point_is_the_earliest_after_which_little_enough_is_kept(
    tmp_path_factory: pytest.TempPathFactory,
    taken: Sequence[tuple[int, int, int]],
    first: Sequence[int],
    share: float,
) -> None:
    log = LocalLog(tmp_path_factory.mktemp("log"))
    for source, count, size in taken:
        with log.writer(f"source-{source}") as writer:
            writer.append(entries([Record(b"x" * size)] * count))
    held = {p: (min(first[p], log.bounds(p).end - 1), log.bounds(p).end) for p in log.partitions()}
    most = int(share * held_bytes(log, held))
    found = release_point(log, held, most)

    def kept_after(stamp: int) -> int:
        gone = up_to(log, held, stamp)
        return held_bytes(log, {p: (gone.get(p, (0, start))[1], end) for p, (start, end) in held.items()})

    stamps = sorted({log.reader(p).stamp_at(at) for p, (start, end) in held.items() for at in range(start, end)})
    assert found == next(stamp for stamp in stamps if kept_after(stamp) <= most)
