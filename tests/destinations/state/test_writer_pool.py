"""Slow, busy and broken units delay nobody else; a unit is written by one writer at a time and in its order."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from penstock.conflation.bundle import Unit
from penstock.conflation.unit_state import UnitState, Work
from penstock.destinations.state.receipt import BEHIND_DUE
from penstock.destinations.state.store.contract import RowsChanged, StateChange
from penstock.destinations.state.writing.joined_writes import MOST, JoinedWrites, JoinHistory
from penstock.destinations.state.writing.write_ends import Away, NotTaken, Separated, WriteEnd, Written
from penstock.destinations.state.writing.writer_pool import BUSY, NO_CONNECTION, PoolResult, SlowUnits, WriterPool
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
    def write_one(works: Sequence[Work]) -> Sequence[WriteEnd]:
        (work,) = works
        return [write(work)]

    return WriterPool(write_one, workers, patience, slow or SlowUnits(), close).run(units)


def run_joined(
    write: Callable[[Sequence[Work]], Sequence[WriteEnd]],
    units: list[UnitState],
    workers: int = 1,
    patience: float = 60.0,
    slow: SlowUnits | None = None,
    has_failed: Callable[[Work], bool] = lambda work: False,
    history: JoinHistory | None = None,
) -> PoolResult:
    joined = JoinedWrites(history or JoinHistory(), lambda work: 100, has_failed)
    return WriterPool(write, workers, patience, slow or SlowUnits(), lambda: None, joined).run(units)


def fleet(text: str, count: int = 20) -> list[UnitState]:
    return [unit(f"hub{number}", text) for number in range(count)]


class Transactions:
    """What was written together: of each transaction the kind and the sources."""

    def __init__(self, refused: Collection[str] = ()) -> None:
        self.done: list[tuple[str, list[str]]] = []
        self._refused = refused

    def write(self, works: Sequence[Work]) -> Sequence[WriteEnd]:
        sources = [work.unit.source for work in works]
        assert len({work.kind.name for work in works}) == 1
        assert len(set(sources)) == len(sources)
        if self._refused and not set(sources).isdisjoint(self._refused):
            return [Separated()] * len(works) if len(works) > 1 else [NotTaken("refused", 1.0)]
        self.done.append((works[0].kind.name, sources))
        return [DONE] * len(works)


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


def test_many_units_are_written_together_kind_by_kind() -> None:
    found = Transactions()
    result = run_joined(found.write, fleet("A0.1 C0.1"))
    everybody = [f"hub{number}" for number in range(20)]
    assert found.done == [("A", everybody), ("C", everybody)]
    assert len(result.ended) == 40


def test_what_is_written_together_leaves_something_to_other_writers() -> None:
    found = Transactions()
    run_joined(found.write, fleet("A0.1"), workers=10)
    assert max(len(sources) for _, sources in found.done) <= 2
    few = Transactions()
    run_joined(few.write, fleet("A0.1", 10), workers=10)
    assert [len(sources) for _, sources in few.done] == [1] * 10


def test_no_more_than_so_many_are_written_together() -> None:
    found = Transactions()
    run_joined(found.write, fleet("A0.1", 2 * MOST))
    assert [len(sources) for _, sources in found.done] == [MOST, MOST]


def test_a_kind_in_between_does_not_keep_the_others_apart() -> None:
    found = Transactions()
    run_joined(found.write, [unit(f"hub{n}", "A0.1" if n % 2 else "C0.1") for n in range(6)])
    assert found.done == [("C", ["hub0", "hub2", "hub4"]), ("A", ["hub1", "hub3", "hub5"])]


def test_packs_and_hybrids_are_written_by_themselves() -> None:
    found = Transactions()
    run_joined(found.write, [*fleet("CC0.1@0.2 C0.2 D0.1^0.1 D0.2^0.1", 3), unit("h1", "H0.1"), unit("h2", "H0.1")])
    assert [(kind, len(sources)) for kind, sources in found.done] == [
        ("C", 3), ("H", 1), ("H", 1), ("CC", 3), ("D", 1), ("D", 1), ("D", 1)
    ]  # fmt: skip


def test_if_one_of_them_is_refused_the_others_are_written_all_the_same() -> None:
    found = Transactions(refused={"hub3"})
    units = fleet("A0.1 C0.1")
    result = run_joined(found.write, units)
    refused = [work.unit.source for work, end in result.ended if isinstance(end, NotTaken)]
    assert refused == ["hub3", "hub3"]
    assert len(result.ended) == 40
    assert [each.reason for state in units for each in state.waiting()] == ["refused", "refused"]


def test_what_was_not_taken_the_last_time_is_tried_by_itself() -> None:
    found = Transactions()
    run_joined(found.write, fleet("A0.1", 5), has_failed=lambda work: work.unit.source == "hub2")
    assert found.done == [("A", ["hub0", "hub1", "hub3", "hub4"]), ("A", ["hub2"])]


def test_slow_units_are_never_written_together_with_others() -> None:
    found, slow = Transactions(), SlowUnits()
    slow.note_speed(Unit("hub0"), is_slow=True)
    run_joined(found.write, fleet("A0.1", 5), workers=2, slow=slow)
    assert all(sources == ["hub0"] for _, sources in found.done if "hub0" in sources)


def test_units_that_are_let_go_together_are_not_taken_for_slow() -> None:
    released, slow = threading.Event(), SlowUnits()

    def write(works: Sequence[Work]) -> Sequence[WriteEnd]:
        assert released.wait(60)
        return [DONE] * len(works)

    result = run_joined(write, fleet("A0.1 C0.1", 5), patience=0.05, slow=slow)
    assert result.left == {Unit(f"hub{number}"): BUSY for number in range(5)}
    assert len(slow.busy()) == 5
    released.set()
    eventually(lambda: not slow.busy(), "the write ends")
    assert len(slow.take_ended()) == 5
    assert not any(slow.is_slow(Unit(f"hub{number}")) for number in range(5))


def test_fewer_are_written_together_after_one_was_not_taken_and_slowly_more_again() -> None:
    history = JoinHistory()
    for _ in range(20):
        history.shrink()
    assert history.limit == 2
    for _ in range(100):
        history.grow()
    assert history.limit == MOST


def test_what_takes_long_by_itself_is_not_written_together_with_others_until_it_is_quick() -> None:
    history = JoinHistory()
    history.note_alone(Unit("hub1"), is_long=True)
    found = Transactions()
    run_joined(found.write, fleet("A0.1", 4), history=history)
    assert found.done == [("A", ["hub0", "hub2", "hub3"]), ("A", ["hub1"])]
    history.note_alone(Unit("hub1"), is_long=False)
    run_joined(found.write, fleet("A0.2", 4), history=history)
    assert len(found.done[-1][1]) == 4


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
    # Nobody asks in vain before the write has ended, and then at once.
    assert {each.due for each in bench.waiting} == {BEHIND_DUE}
    assert bench.destination.look_after() == set()
    released.set()
    eventually(lambda: database.open_stores == 0, "the slow write ends")
    assert "slow\x1fA" in bench.destination.look_after()
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
