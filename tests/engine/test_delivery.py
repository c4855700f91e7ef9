"""The batch protocol on a real log, ledger and destination, without Spark: what a batch becomes, what a retry does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import faults
from penstock.destinations.contract import NULL_TABLE_BOOK, Batch, Part, Receipt, TableBook, TableReceipt
from penstock.engine.delivery.batch_writer import Stopped
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.ledger import RouteState, Totals
from penstock.errors import RouteError, TransientError
from penstock.outcome import FAILURE_SCHEMA
from penstock.record import Record, entries
from tests.engine.bench import Awkward, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_every_record_of_a_batch_is_loaded_skipped_or_failed(bench: Bench) -> None:
    bench.append(b'{"n": 1}', b'{"n": 2}', b'{"n": 3}', b"nonsense")
    bench.append(b"torn", headers={"malformed": "line 5: not JSON"})
    bench.deliver(0, 5)
    assert bench.written() == [2, 3]
    assert bench.ledger.totals("out") == Totals(items=5, loaded=2, skipped=1, failed=2)
    failed = list(bench.failed.read("out", bench.ledger.failed_extent("out")))
    assert {(e.step, e.record.data) for e in failed} == {("where", b"nonsense"), ("source", b"torn")}


def test_a_batch_that_is_delivered_again_changes_nothing(bench: Bench) -> None:
    bench.append(b'{"n": 2}', b"nonsense")
    bench.deliver(0, 2)
    bench.deliver(0, 2)
    assert bench.written() == [2]
    assert bench.ledger.totals("out") == Totals(items=2, loaded=1, failed=1)
    assert bench.ledger.failed_extent("out").entries == 1


def test_a_batch_under_way_is_settled_also_if_the_route_no_longer_reads_one_of_its_sources(bench: Bench) -> None:
    bench.append(b'{"n": 2}', b'{"n": 3}', b'{"n": 6}')
    shop = bench.log.writer("shop")
    shop.append(entries(Record(b'{"n": %d}' % n, namespace="shop") for n in (4, 5)))
    bench.ledger.open_route("out", {shop.partition: 0})
    bench.ledger.begin("out", {bench.writer.partition: (0, 2), shop.partition: (0, 2)})
    bench.deliver(0, 3)
    assert sorted(bench.written()) == [2, 3, 4, 5, 6]
    assert bench.ledger.totals("out") == Totals(items=5, loaded=5)
    assert bench.ledger.standing("out").pending is None


def test_files_that_are_written_and_noted_are_still_there_after_a_crash_before_the_commit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.append(b'{"n": 2}', b'{"n": 3}')
    monkeypatch.setattr(faults, "_armed", faults.parse("route.before_ledger_commit=raise"))
    with pytest.raises(faults.InjectedFault):
        bench.deliver(0, 2)
    bench.deliver(0, 2)
    assert bench.written() == [2, 3]
    assert bench.ledger.totals("out") == Totals(items=2, loaded=2)


def test_a_destination_that_is_away_is_tried_again_until_it_is_back(bench: Bench) -> None:
    bench.append(b'{"n": 2}')
    unavailable = TransientError("PEN-TST-001", "unavailable.")
    bench.destination = Awkward(bench.destination, [unavailable, unavailable, None])
    bench.deliver(0, 1)
    assert bench.written() == [2]
    activity = bench.ledger.activity("out")
    assert activity is not None
    assert activity.state is RouteState.RUNNING


def test_a_stop_while_the_destination_is_away_leaves_the_batch_in_the_log(bench: Bench) -> None:
    bench.append(b'{"n": 2}')
    real = bench.destination
    bench.destination = Awkward(real, [TransientError("PEN-TST-001", "unavailable.")] * 9)
    bench.stopping.set()
    with pytest.raises(Stopped):
        bench.deliver(0, 1)
    assert bench.ledger.totals("out") == Totals()
    bench.destination = real
    bench.deliver(0, 1)
    assert bench.written() == [2]


def test_rows_that_the_destination_refuses_one_by_one_are_found_again_in_the_log(bench: Bench) -> None:
    bench.append(b'{"n": 2}', b'{"n": 3}', b'{"n": 4}')
    partition = bench.writer.partition

    class Picky(Awkward):
        def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
            row = {"partition": partition, "offset": 1, "item": 0, "code": "refused", "message": "3 is unlucky"}
            (table,) = self.real.write(batch, parts).tables
            failures = pa.RecordBatch.from_pylist([row], schema=FAILURE_SCHEMA)
            return Receipt([replace(table, rows=table.rows - 1, failures=failures)])

    bench.destination = Picky(bench.destination, [])
    bench.deliver(0, 3)
    (entry,) = bench.failed.read("out", bench.ledger.failed_extent("out"))
    assert (entry.record.data, entry.error, entry.step) == (b'{"n": 3}', "3 is unlucky", "destination")
    assert bench.ledger.totals("out") == Totals(items=3, loaded=2, failed=1)


def test_a_destination_that_loses_a_row_is_caught_before_the_commit(bench: Bench) -> None:
    bench.append(b'{"n": 2}', b'{"n": 3}')

    class Forgetful(Awkward):
        def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
            return Receipt()

    bench.destination = Forgetful(bench.destination, [])
    with pytest.raises(RouteError, match="staged 2 rows and its destination accounts for 0"):
        bench.deliver(0, 2)
    assert bench.ledger.totals("out") == Totals()


def test_a_table_that_is_loaded_is_not_loaded_again_while_its_neighbour_is_away(bench: Bench) -> None:
    """One table of the batch is written, the other is not; then the engine is stopped, and later tries again."""
    bench.append(b'{"n": 1}', b'{"n": 2}', b'{"n": 3}')
    asked: list[list[str]] = []

    class HalfUnavailable(Awkward):
        """Two tables, of which the second can be reached only when ``errors`` is empty."""

        def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
            asked.append([part.table for part in parts])
            shut = TransientError("PEN-TST-001", "unavailable.")
            return Receipt(
                [
                    TableReceipt(part.table, 0, unavailable=shut)
                    if self.errors and part.table == "b"
                    else TableReceipt(part.table, part.rows)
                    for part in parts
                ]
            )

    def in_two_tables(report: BatchReport) -> BatchReport:
        (part,) = report.parts
        return replace(report, parts=[replace(part, table="a", rows=1), replace(part, table="b", rows=1)])

    bench.destination = HalfUnavailable(bench.destination, [TransientError("PEN-TST-001", "unavailable.")])
    bench.stopping.set()
    with pytest.raises(Stopped):
        bench.deliver(0, 3, in_two_tables)
    bench.destination = HalfUnavailable(bench.destination, [])
    bench.deliver(0, 3, in_two_tables)
    assert asked == [["a", "b"], ["b"]]
    assert bench.ledger.totals("out") == Totals(items=3, loaded=2, skipped=1)
    assert {name: count.rows for name, count in bench.ledger.table_counts("out").items()} == {"a": 1, "b": 1}


def test_a_range_in_which_everything_is_skipped_still_advances(bench: Bench) -> None:
    bench.append(b'{"n": 0}', b'{"n": 1}')
    bench.deliver(0, 2)
    assert bench.ledger.offsets("out")[bench.writer.partition].committed == 2
    assert bench.ledger.totals("out") == Totals(items=2, skipped=2)
