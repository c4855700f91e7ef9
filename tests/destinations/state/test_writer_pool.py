"""Slow, busy and broken units delay nobody else; a unit is written by one writer at a time and in its order."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.conflation.bundle import Unit
from penstock.conflation.unit_state import UnitState, Work
from penstock.destinations.state.store.contract import RowsChanged, StateChange
from penstock.destinations.state.write_ends import Away, NotTaken, WriteEnd, Written
from penstock.destinations.state.writer_pool import BUSY, NO_CONNECTION, PoolResult, SlowUnits, WriterPool
from penstock.testing.waiting import eventually
from tests.conflation.samples import KINDS, bundle
from tests.destinations.state.bundles import Bench, config
from tests.destinations.state.memory_store import Database, MemoryDestination

DONE = Written(RowsChanged(), 0.0)
POSTGRES = {"path": None, "url": "postgresql://nobody@localhost/none"}
"""Of an embedded database no write is let go."""


def unit(source: str, text: str) -> UnitState:
    state = UnitState(Unit(source), KINDS)
    for offset, word in enumerate(text.split()):
        state.insert(bundle(word, offset, source))
    return state


def run(
    write: Callable[[Work], WriteEnd],
    units: list[UnitState],
    workers: int = 2,
    patience: float = 60.0,
    slow: SlowUnits | None = None,
    close: Callable[[], None] = lambda: None,
) -> PoolResult:
    return WriterPool(write, workers, patience, slow or SlowUnits(), close).run(units)


def test_the_kinds_of_a_unit_are_written_in_their_order_by_one_writer_at_a_time() -> None:
    lock, writing, order = threading.Lock(), Counter[str](), []

    def write(work: Work) -> WriteEnd:
        with lock:
            writing[work.unit.source] += 1
            assert writing[work.unit.source] == 1
            order.append((work.unit.source, work.kind.name))
        with lock:
            writing[work.unit.source] -= 1
        return DONE

    sources = [f"hub{number}" for number in range(300)]
    run(write, [unit(source, "CC0.7@0.2 A0.1 C0.2 I0.1 H0.1") for source in sources], workers=10)
    for source in sources:
        assert [kind for other, kind in order if other == source] == ["A", "C", "CC", "I", "H"]


def test_a_unit_with_much_to_do_has_its_turns_between_the_others() -> None:
    order: list[str] = []

    def write(work: Work) -> WriteEnd:
        order.append(work.unit.source)
        return DONE

    others = [unit(f"hub{number}", "A0.1") for number in range(3)]
    run(write, [unit("busy", "A0.1 C0.1 CC0.1@0.1 L0.1@0.1"), *others], workers=1)
    assert order == ["busy", "hub0", "hub1", "hub2", "busy", "busy", "busy"]


def test_a_slow_unit_is_let_go_and_ends_by_itself() -> None:
    released, closed, slow = threading.Event(), threading.Event(), SlowUnits()

    def write(work: Work) -> WriteEnd:
        if work.unit.source == "slow":
            assert released.wait(60)
        return DONE

    units = [unit("slow", "A0.1 C0.1"), *(unit(f"hub{number}", "A0.1") for number in range(50))]
    result = run(write, units, patience=0.05, slow=slow, close=closed.set)
    assert len(result.ended) == 50
    assert result.left == {Unit("slow"): BUSY}
    assert [str(work.version) for work in result.let_go.values()] == ["0.1"]
    assert not closed.is_set(), "its connection is still in use"
    again = run(write, [unit("slow", "A0.2"), unit("hub1", "A0.2")], slow=slow)
    assert (again.left, len(again.ended)) == ({Unit("slow"): BUSY}, 1)
    released.set()
    assert closed.wait(60)
    assert slow.busy() == {}
    assert slow.take_ended() == [(result.let_go[Unit("slow")], DONE)]


def test_a_unit_that_was_slow_is_not_waited_for_again_until_it_is_fast() -> None:
    released, slow = threading.Event(), SlowUnits()

    def write(work: Work) -> WriteEnd:
        assert released.wait(60)
        return DONE

    def end() -> None:
        released.set()
        eventually(lambda: not slow.busy(), "the write ends")

    run(write, [unit("slow", "A0.1")], patience=0.05, slow=slow)
    end()
    released.clear()
    # With this patience the test would hang if anybody waited.
    assert run(write, [unit("slow", "A0.2")], patience=3600, slow=slow).left == {Unit("slow"): BUSY}
    end()
    assert len(run(write, [unit("slow", "A0.3")], patience=3600, slow=slow).ended) == 1


def test_slow_units_leave_connections_to_others() -> None:
    released, slow = threading.Event(), SlowUnits()
    for number in range(4):
        slow.note_speed(Unit(f"slow{number}"), is_slow=True)

    def write(work: Work) -> WriteEnd:
        if work.unit.source.startswith("slow"):
            assert released.wait(60)
        return DONE

    units = [*(unit(f"slow{number}", "A0.1") for number in range(4)), *(unit(f"hub{n}", "A0.1") for n in range(9))]
    result = run(write, units, workers=4, slow=slow)
    assert len(result.ended) == 9
    assert sorted(result.left.values()) == sorted([BUSY, BUSY, NO_CONNECTION, NO_CONNECTION])
    released.set()


def test_all_connections_may_be_busy_and_the_batch_ends_even_so() -> None:
    released = threading.Event()

    def write(work: Work) -> WriteEnd:
        assert released.wait(60)
        return DONE

    result = run(write, [unit(f"hub{number}", "A0.1") for number in range(5)], workers=2, patience=0.05)
    assert sorted(result.left.values()) == sorted([BUSY, BUSY, NO_CONNECTION, NO_CONNECTION, NO_CONNECTION])
    released.set()


def test_a_unit_that_fails_goes_on_with_its_other_kinds() -> None:
    def write(work: Work) -> WriteEnd:
        return NotTaken("refused", 1.0) if work.kind.name == "A" else DONE

    state = unit("hub1", "A0.1 C0.1")
    result = run(write, [state])
    assert [(work.kind.name, end) for work, end in result.ended] == [("A", NotTaken("refused", 1.0)), ("C", DONE)]
    assert [each.reason for each in state.waiting()] == ["refused"]


def test_a_database_that_goes_away_ends_the_batch_and_the_rest_waits() -> None:
    written: list[Work] = []

    def write(work: Work) -> WriteEnd:
        if len(written) == 3:
            raise Away("no connection")
        written.append(work)
        return DONE

    closed = threading.Event()
    result = run(write, [unit(f"hub{n}", "A0.1") for n in range(20)], workers=1, close=closed.set)
    assert (len(result.ended), result.away, closed.is_set()) == (3, "no connection", True)
    assert set(result.left.values()) == {"no connection"}
    assert len(result.left) == 17


def test_an_error_of_ours_is_not_hidden() -> None:
    def write(work: Work) -> WriteEnd:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(write, [unit("hub1", "A0.1")])


def test_a_slow_source_waits_alone_and_its_write_counts_once(tmp_path: Path) -> None:
    database, released = Database(), threading.Event()

    def wait(change: StateChange) -> None:
        if change.source == "slow":
            assert released.wait(60)

    database.before_write = wait
    bench = Bench(MemoryDestination(config(**POSTGRES, unit_patience="500ms"), database), tmp_path / "stage")
    bench.add("A0.1", "slow")
    bench.deliver("A0.1")
    assert (bench.waits, database.written, bench.reasons) == (1, [("hub1", "A", "0.1")], [BUSY])
    bench.add("A0.2", "slow")
    bench.deliver("A0.2")
    assert bench.waits == 2, "what is being written is not superseded"
    assert database.positions["state"] == {0: 0}
    released.set()
    eventually(lambda: database.open_stores == 0, "the slow write ends")
    bench.deliver("A0.3")
    assert bench.receipts[-1].wakes == ["slow\x1fA"]
    bench.retry_woken()

    def all_is_written() -> bool:
        bench.retry()
        return not bench.waits

    eventually(all_is_written, "the slow source is written")
    assert [version for source, _, version in database.written if source == "slow"] == ["0.1", "0.2"]
    assert bench.counts["written"] + bench.counts["conflated"] == 5
    assert database.positions["state"] == {0: 5}


def test_there_are_no_more_sessions_than_workers(tmp_path: Path) -> None:
    database = Database()
    bench = Bench(MemoryDestination(config(**POSTGRES, workers=3), database), tmp_path / "stage")
    for number in range(40):
        bench.add("A0.1 C0.1 H0.1", f"hub{number}")
    bench.deliver()
    assert len(database.written) == 120
    assert database.most_sessions <= 3
