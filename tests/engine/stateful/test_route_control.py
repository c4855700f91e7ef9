"""What a running engine tells a holding step: ticks while something waits, releases when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from penstock import faults
from penstock.engine.ledger import Operator, Settlement
from penstock.engine.pipeline import Pipeline
from penstock.engine.route_sources import control_source
from penstock.engine.stateful.control import ControlWriter
from penstock.engine.stateful.control_records import tick_record
from penstock.engine.stateful.route_control import RouteControl
from penstock.record import Record, entries, records
from penstock.testing.waiting import eventually
from tests.engine.projects import append, pipeline

CONFIG = """\
name: shop
sources: {web: {type: file, path: ./web.ndjson}}
routes:
  out:
    from: web
    steps: [{gather: {key: k, until: done, at_most: 1s}}]
    to: {type: "null"}
"""
ROUTE = "out"
ADA = Operator("ada@example")
YEAR_2100 = 4_102_444_800_000_000


@pytest.fixture
def opened(tmp_path: Path) -> Pipeline:
    """Of two records that the route has read the second one waits."""
    made = pipeline(tmp_path, CONFIG)
    partition = append(made, "web", [b'{"k": 1}', b'{"k": 1}'])
    made.ledger.open_route(ROUTE, {partition: 0})
    batch = made.ledger.begin(ROUTE, {partition: (0, 2)})
    assert batch is not None
    made.ledger.commit(batch, Settlement(2, 1, waiting=1, holds={partition: 1}))
    return made


@contextmanager
def telling(opened: Pipeline) -> Iterator[None]:
    ended = Event()
    control = RouteControl(opened.log, opened.ledger, opened.plan(ROUTE))
    thread = Thread(target=control.keep_telling, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def told(opened: Pipeline) -> list[Record]:
    return [
        record
        for partition in opened.log.partitions([control_source(ROUTE)])
        for batch in opened.log.read(partition, 0)
        for record in records(batch)
    ]


def kinds(opened: Pipeline) -> set[str]:
    return {record.namespace for record in told(opened)}


def test_ticks_come_while_something_waits_and_a_release_when_it_is_asked_for(opened: Pipeline) -> None:
    with telling(opened):
        eventually(lambda: kinds(opened) == {"tick"}, "there are ticks")
        opened.ledger.request_release(ROUTE, 7, ADA, {0: (1, 2)})
        eventually(lambda: opened.ledger.release_requests(ROUTE) == [], "the request is carried out")
    (released,) = [record for record in told(opened) if record.namespace == "release"]
    assert released.data == b'{"up_to": 7}'
    times = [record.timestamp for record in told(opened)]
    assert times == sorted(times)


def test_what_was_asked_for_while_no_engine_ran_is_carried_out_at_the_next_start(opened: Pipeline) -> None:
    for up_to in (7, 9, 8):
        opened.ledger.request_release(ROUTE, up_to, ADA, {0: (1, 2)})
    with telling(opened):
        eventually(lambda: opened.ledger.release_requests(ROUTE) == [], "the requests are carried out")
    (released,) = [record for record in told(opened) if record.namespace == "release"]
    assert released.data == b'{"up_to": 9}'


def test_it_goes_on_after_an_error(opened: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_armed", faults.parse("control.release_appended=raise,log.append.before_write=raise"))
    opened.ledger.request_release(ROUTE, 7, ADA, {0: (1, 2)})
    with telling(opened):
        eventually(lambda: opened.ledger.release_requests(ROUTE) == [], "the request is carried out")
        eventually(lambda: kinds(opened) == {"tick", "release"}, "there are ticks again")
    released = [record.data for record in told(opened) if record.namespace == "release"]
    assert released == [b'{"up_to": 7}'] * 2


def test_nothing_is_written_where_nothing_waits_and_nobody_asks(opened: Pipeline) -> None:
    batch = opened.ledger.begin(ROUTE, {0: (2, 3)})
    assert batch is not None
    opened.ledger.commit(batch, Settlement(1, 2, waiting=-1, holds={0: None}))
    with telling(opened):
        Event().wait(0.5)
    RouteControl(opened.log, opened.ledger, opened.plan(ROUTE)).tell_once()
    assert told(opened) == []
    assert opened.log.partitions([control_source(ROUTE)]) == {}


def test_a_run_that_ends_says_once_what_time_it_is(opened: Pipeline) -> None:
    for _ in range(2):
        RouteControl(opened.log, opened.ledger, opened.plan(ROUTE)).tell_once()
    # The route has not read the first one.
    assert [record.namespace for record in told(opened)] == ["tick"]


def test_ticks_do_not_pile_up_while_the_route_reads_none(opened: Pipeline) -> None:
    with telling(opened):
        eventually(lambda: kinds(opened) == {"tick"}, "there is a tick")
        Event().wait(0.5)
        assert len(told(opened)) == 1
        (control,) = opened.log.partitions([control_source(ROUTE)])
        opened.ledger.open_route(ROUTE, {control: 0})
        batch = opened.ledger.begin(ROUTE, {control: (0, 1)})
        assert batch is not None
        opened.ledger.commit(batch, Settlement(1, 1))
        eventually(lambda: len(told(opened)) == 2, "there is another one once it was read")


def test_the_time_of_control_records_never_goes_back(opened: Pipeline) -> None:
    with opened.log.writer(control_source(ROUTE)) as earlier:
        earlier.append(entries([tick_record(YEAR_2100)]))
    for _ in range(2):
        with ControlWriter(opened.log, ROUTE) as writer:
            writer.tick()
            writer.release(5)
            writer.tick()
    times = [record.timestamp for record in told(opened)]
    assert times == sorted(times)
    assert times[0].year == 2100
