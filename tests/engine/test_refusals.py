"""A destination that refuses a batch: the bad records are found, the others are delivered; or the route stops there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import faults
from penstock.destinations.contract import NULL_TABLE_BOOK, Batch, Part, Receipt, TableBook, TableReceipt
from penstock.engine.delivery.batch_writer import Stopped
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.halts import Halted
from penstock.engine.delivery.refusals import refused_items
from penstock.engine.delivery.task import stage_ranges
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.failed.failed_items import failed_items
from penstock.engine.ledger import Act, Halt, Operator, RouteState, Totals
from penstock.errors import RefusedError, RouteError, TransientError
from penstock.log.local_log import LocalLog
from penstock.outcome import FAILURE_SCHEMA
from penstock.record import Header, Record, entries
from tests.engine.bench import Awkward, Bench, Fussy

ADA = Operator("ada@example", "known")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def fussy(bench: Bench, *refused: int) -> Fussy:
    found = Fussy(bench.plan.destination(), refused)
    bench.destination = found
    return found


def numbers(*values: int) -> list[bytes]:
    return [b'{"n": %d}' % n for n in values]


# Dead letter: the default


@pytest.mark.parametrize("refused", [(), (2,), (11,), (6,), (2, 3), (2, 11), (5, 6, 7, 8), tuple(range(2, 12))])
def test_records_that_are_refused_fail_alone_and_all_others_are_delivered(
    bench: Bench, refused: tuple[int, ...]
) -> None:
    bench.append(*numbers(*range(2, 12)))
    fussy(bench, *refused)
    bench.deliver(0, 10)
    assert sorted(bench.written()) == [n for n in range(2, 12) if n not in refused]
    failures = bench.failures()
    assert [entry.record.offset for entry in failures] == [n - 2 for n in refused]
    assert [(entry.step, entry.code, entry.error) for entry in failures] == [
        ("destination", "refused", f"{n} is unlucky") for n in refused
    ]
    assert bench.ledger.totals("out") == Totals(items=10, loaded=10 - len(refused), failed=len(refused))
    assert bench.committed == 10


def test_a_batch_that_is_cut_keeps_what_steps_skipped_and_failed(bench: Bench) -> None:
    bench.append(*numbers(0, 2, 3), b"nonsense", *numbers(1, 4))
    fussy(bench, 3)
    bench.deliver(0, 6)
    assert sorted(bench.written()) == [2, 4]
    assert [(entry.step, entry.record.data) for entry in bench.failures()] == [
        ("destination", b'{"n": 3}'),
        ("where", b"nonsense"),
    ]
    assert bench.ledger.totals("out") == Totals(items=6, loaded=2, skipped=2, failed=2)


def test_good_records_behind_any_number_of_refused_ones_are_delivered(bench: Bench) -> None:
    bad, good = range(2, 302), range(302, 312)
    bench.append(*numbers(*bad, *good))
    fussy(bench, *bad)
    bench.deliver(0, 310)
    assert sorted(bench.written()) == list(good)
    assert [entry.record.offset for entry in bench.failures()] == [n - 2 for n in bad]
    assert bench.ledger.totals("out") == Totals(items=310, loaded=10, failed=300)


@pytest.mark.parametrize("point", ["route.range_fixed", "route.batch_cut", "route.before_ledger_commit"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_crash_in_the_middle_of_the_search_doubles_and_loses_nothing(
    bench: Bench, point: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.append(*numbers(*range(2, 12)))
    fussy(bench, 3, 9)
    monkeypatch.setattr(faults, "_armed", faults.parse(f"{point}@{nth}=raise"))
    with pytest.raises(faults.InjectedFault):
        bench.deliver(0, 10)
    bench.deliver(0, 10)
    assert sorted(bench.written()) == [2, 4, 5, 6, 7, 8, 10, 11]
    assert [entry.record.offset for entry in bench.failures()] == [1, 7]
    assert bench.ledger.totals("out") == Totals(items=10, loaded=8, failed=2)


def test_a_stop_between_two_pieces_leaves_the_rest_in_the_log(bench: Bench) -> None:
    bench.append(*numbers(2, 3, 4, 5))
    fussy(bench, 5)
    bench.stopping.set()
    with pytest.raises(Stopped):
        bench.deliver(0, 4)
    assert bench.committed < 4
    bench.stopping.clear()
    bench.deliver(0, 4)
    assert sorted(bench.written()) == [2, 3, 4]


def test_a_refusal_of_everything_after_a_table_was_written_is_a_defect_that_is_said(bench: Bench) -> None:
    bench.append(*numbers(2, 3))

    class Confused(Awkward):
        def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
            if len(parts) == 1:
                raise RefusedError("PEN-TST-002", "no")
            return Receipt(
                [TableReceipt("a", 1), TableReceipt("b", 0, unavailable=TransientError("PEN-TST-001", "away"))]
            )

    def in_two_tables(report: BatchReport) -> BatchReport:
        (part,) = report.parts
        return replace(report, parts=[replace(part, table="a", rows=1), replace(part, table="b", rows=1)])

    bench.destination = Confused(bench.destination, [])
    with pytest.raises(RouteError, match="after tables of it were written"):
        bench.deliver(0, 2, in_two_tables)
    assert bench.ledger.totals("out") == Totals()


# Stop


def test_ten_records_and_the_seventh_is_refused_six_are_delivered_and_the_route_stands_before_it(bench: Bench) -> None:
    bench.stops()
    bench.append(*numbers(*range(2, 12)))
    fussy(bench, 8)
    with pytest.raises(Halted):
        bench.deliver(0, 10)
    assert sorted(bench.written()) == [2, 3, 4, 5, 6, 7]
    assert bench.committed == 6
    assert bench.failures() == []
    standing = bench.ledger.standing("out")
    assert standing.halt == Halt(bench.writer.partition, 6, "destination", "refused", "8 is unlucky")
    assert standing.pending is None
    activity = bench.ledger.activity("out")
    assert activity is not None
    assert activity.state is RouteState.HALTED
    assert "8 is unlucky" in activity.message
    assert "penstock offset ack out 6" in activity.message


def test_a_record_that_a_step_fails_stops_the_route_too(bench: Bench) -> None:
    bench.stops()
    bench.append(*numbers(2, 3), b"nonsense", *numbers(4))
    with pytest.raises(Halted):
        bench.deliver(0, 4)
    assert bench.written() == [2, 3]
    halt = bench.ledger.standing("out").halt
    assert halt is not None
    assert (halt.offset, halt.step, halt.code) == (2, "where", "not_json")


def test_a_record_that_its_source_could_not_read_stops_nothing(bench: Bench) -> None:
    bench.stops()
    bench.append(*numbers(2))
    bench.append(b"{", headers={str(Header.MALFORMED): "a.ndjson:2: not JSON"})
    bench.append(*numbers(3))
    bench.deliver(0, 3)
    assert bench.written() == [2, 3]
    assert bench.ledger.totals("out") == Totals(items=3, loaded=2, failed=1)


def test_what_is_skipped_before_the_record_is_behind_the_route(bench: Bench) -> None:
    bench.stops()
    bench.append(*numbers(0, 1), b"nonsense")
    with pytest.raises(Halted):
        bench.deliver(0, 3)
    assert bench.committed == 2
    assert bench.ledger.totals("out") == Totals(items=2, skipped=2)


def test_of_a_refused_and_a_failed_record_the_first_one_counts(bench: Bench) -> None:
    bench.stops()
    bench.append(*numbers(2, 3, 4), b"nonsense")
    fussy(bench, 3)
    with pytest.raises(Halted):
        bench.deliver(0, 4)
    halt = bench.ledger.standing("out").halt
    assert halt is not None
    assert (halt.offset, halt.step) == (1, "destination")


def test_a_route_that_goes_on_tries_the_record_alone_and_the_rest_together(bench: Bench) -> None:
    bench.stops()
    bench.append(*numbers(*range(2, 12)))
    destination = fussy(bench, 8)
    with pytest.raises(Halted):
        bench.deliver(0, 10)
    with pytest.raises(Halted):
        bench.deliver(0, 10)
    destination.tries.clear()
    destination.refused = ()
    bench.deliver(0, 10)
    assert destination.tries == [[8], [9, 10, 11]]
    assert sorted(bench.written()) == list(range(2, 12))
    assert bench.ledger.standing("out").halt is None
    assert bench.ledger.totals("out") == Totals(items=10, loaded=10)


@pytest.mark.parametrize("point", ["route.range_fixed", "route.batch_cut", "route.before_ledger_commit"])
def test_a_crash_on_the_way_to_the_stop_delivers_no_more_and_no_less(
    bench: Bench, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.stops()
    bench.append(*numbers(*range(2, 12)))
    fussy(bench, 8)
    monkeypatch.setattr(faults, "_armed", faults.parse(f"{point}=raise"))
    with pytest.raises(faults.InjectedFault):
        bench.deliver(0, 10)
    with pytest.raises(Halted):
        bench.deliver(0, 10)
    assert sorted(bench.written()) == [2, 3, 4, 5, 6, 7]
    assert bench.committed == 6


def test_a_destination_that_cannot_take_rows_back_stops_behind_the_batch_with_the_rows_in_failed(bench: Bench) -> None:
    bench.stops()
    bench.append(*numbers(2, 3, 4))
    partition = bench.writer.partition

    class Hasty(Awkward):
        def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
            row = {"partition": partition, "offset": 1, "item": 0, "code": "refused", "message": "3 is unlucky"}
            (table,) = self.real.write(batch, parts).tables
            failures = pa.RecordBatch.from_pylist([row], schema=FAILURE_SCHEMA)
            return Receipt([replace(table, rows=table.rows - 1, failures=failures)])

    bench.destination = Hasty(bench.destination, [])
    with pytest.raises(Halted):
        bench.deliver(0, 3)
    assert [entry.error for entry in bench.failures()] == ["3 is unlucky"]
    assert bench.committed == 3
    bench.append(*numbers(5))
    bench.destination = bench.plan.destination()
    bench.deliver(3, 4)
    assert bench.written()[-1] == 5


def test_what_was_begun_before_the_route_was_told_to_stop_stays_what_it_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.append(*numbers(2), b"nonsense", *numbers(3))
    monkeypatch.setattr(faults, "_armed", faults.parse("route.before_ledger_commit=raise"))
    with pytest.raises(faults.InjectedFault):
        bench.deliver(0, 3)
    bench.stops()
    with pytest.raises(Halted):
        bench.deliver(0, 3)
    assert bench.written() == [2, 3]
    assert bench.ledger.totals("out") == Totals(items=3, loaded=2, failed=1)
    bench.deliver(0, 3)


@pytest.mark.parametrize(("refused", "delivered", "stands"), [(3, [2], (1, 0)), (12, [2, 3, 4, 11], (3, 1))])
def test_of_several_partitions_the_lower_one_comes_first(
    bench: Bench, refused: int, delivered: list[int], stands: tuple[int, int]
) -> None:
    bench.stops()
    bench.append(*numbers(2, 3, 4))
    with bench.log.writer("shop") as other:
        other.append(entries(Record(data, namespace="web") for data in numbers(11, 12, 13)))
    first, second = bench.writer.partition, other.partition
    bench.plan = replace(bench.plan, sources=("web", "shop"))
    bench.ledger.open_route("out", {second: 0})
    destination = fussy(bench, refused)
    deliver = Delivery(bench.plan, destination, bench.log, bench.ledger, bench.failed, bench.stopping).deliver
    everything = {first: (0, 3), second: (0, 3)}
    with pytest.raises(Halted):
        deliver(stage_ranges(bench.plan, bench.log, everything))
    assert sorted(bench.written()) == delivered
    assert tuple(bench.ledger.offsets("out")[p].committed for p in (first, second)) == stands
    destination.refused = ()
    deliver(stage_ranges(bench.plan, bench.log, everything))
    assert sorted(bench.written()) == [2, 3, 4, 11, 12, 13]


# What an operator has acknowledged


def test_acknowledged_records_are_passed_over_when_the_route_gets_there(bench: Bench) -> None:
    bench.append(*numbers(*range(2, 12)))
    partition = bench.writer.partition
    bench.ledger.acknowledge("out", partition, (3, 5), ADA)
    bench.ledger.acknowledge("out", partition, (9, 10), ADA)
    destination = fussy(bench)
    bench.deliver(0, 10)
    assert destination.tries == [[2, 3, 4], [7, 8, 9, 10]]
    assert bench.ledger.totals("out") == Totals(items=10, loaded=7, skipped=3)
    assert bench.ledger.account("out").skipped_by == {"acknowledged": 3}
    assert bench.ledger.standing("out").acknowledged == {}
    assert [act.act for act in bench.ledger.interventions("out")] == [Act.ACK, Act.ACK]


def test_what_the_ledger_has_is_cut_off_from_what_spark_asks_for(bench: Bench) -> None:
    bench.append(*numbers(*range(2, 12)))
    bench.deliver(0, 4)
    bench.deliver(0, 10)
    assert sorted(bench.written()) == list(range(2, 12))
    assert bench.ledger.totals("out") == Totals(items=10, loaded=10)


def test_a_refused_record_that_the_log_has_lost_stops_the_batch(tmp_path: Path) -> None:
    log = LocalLog(tmp_path)
    with log.writer("web") as writer:
        writer.append(entries(Record(b"{}", namespace="web") for _ in range(3)))
    named = [{"partition": 0, "offset": offset, "item": 0, "code": "refused", "message": "no"} for offset in (1, 2, 7)]
    kept = failed_items(log, refused_items([pa.RecordBatch.from_pylist(named[:2], schema=FAILURE_SCHEMA)]))
    assert [each.record.offset for each in kept] == [1, 2]
    with pytest.raises(RouteError, match="given 1 records and accounts for 0"):
        list(failed_items(log, refused_items([pa.RecordBatch.from_pylist(named, schema=FAILURE_SCHEMA)])))
