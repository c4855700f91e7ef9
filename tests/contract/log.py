"""What every log owes its users. A log's tests inherit this class and say how to open one."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import LogError
from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog, PartitionOwner
from penstock.log.reader import Bounds
from penstock.log.record_order import RangeOrder, beginning, ends
from penstock.record import RECORD_SCHEMA, records
from tests.log.samples import START, number, numbered, numbers, rows


class LogContract:
    def open(self, directory: Path, **options: object) -> LocalLog:
        """A log in ``directory``; the options are those of its config."""
        raise NotImplementedError

    @pytest.fixture
    def log(self, tmp_path: Path) -> LocalLog:
        return self.open(tmp_path / "log", segment_bytes=4096)

    def filled(self, log: LocalLog, groups: int = 20, size: int = 10) -> LocalLog:
        """``groups`` appends of ``size`` numbered entries to the partition of source ``web``."""
        with log.writer("web") as writer:
            for group in range(groups):
                writer.append(numbered(range(group * size, (group + 1) * size)))
        return log

    def test_an_append_returns_the_offsets_that_its_entries_got(self, log: LocalLog) -> None:
        with log.writer("web") as writer:
            assert writer.append(numbered(range(3))) == range(3)
            assert writer.append(numbered([3])) == range(3, 4)
            assert writer.next_offset == 4

    def test_many_batches_are_appended_in_order_a_frame_each(self, log: LocalLog) -> None:
        batches = [numbered(range(n * 3, n * 3 + 3)) for n in range(9)]
        with log.writer("web") as writer:
            prepared = [writer.prepare(batch) for batch in batches]
            assert [writer.write(body) for body in prepared] == [range(n * 3, n * 3 + 3) for n in range(9)]
        assert numbers(log) == [(n, n) for n in range(27)]

    def test_an_append_of_nothing_takes_no_offset(self, log: LocalLog) -> None:
        with log.writer("web") as writer:
            assert len(writer.append(numbered([]))) == 0
            assert writer.append(numbered([0])) == range(1)

    def test_a_record_comes_back_as_it_went_in(self, log: LocalLog) -> None:
        batch = numbered(range(50))
        with log.writer("web") as writer:
            writer.append(batch)
        read = pa.Table.from_batches(log.read(0, 0), RECORD_SCHEMA)
        assert read.column("partition").to_pylist() == [0] * 50
        assert read.column("offset").to_pylist() == list(range(50))
        assert read.column("item").to_pylist() == [0] * 50
        assert read.drop_columns(["partition", "offset", "item"]).equals(pa.Table.from_batches([batch]))

    def test_data_may_be_null_or_any_bytes(self, log: LocalLog) -> None:
        bodies = [None, b"", b"\0\xff" * 10, "ü".encode()]
        column = pa.array(bodies, pa.binary())
        batch = numbered(range(4))
        with log.writer("web") as writer:
            writer.append(pa.RecordBatch.from_arrays([*batch.columns[:-1], column], schema=batch.schema))
        assert [record.data for record in rows(log)] == bodies

    def test_readers_see_an_append_as_soon_as_it_returns(self, log: LocalLog) -> None:
        with log.writer("web") as writer:
            assert log.bounds(0) == Bounds(0, 0)
            assert numbers(log) == []
            writer.append(numbered(range(7)))
            assert log.bounds(0) == Bounds(0, 7)
            assert len(numbers(log)) == 7

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [
            (0, None, range(200)),
            (0, 0, range(0)),
            (0, 1, range(1)),
            (5, 6, range(5, 6)),
            (9, 11, range(9, 11)),
            (37, 163, range(37, 163)),
            (199, None, range(199, 200)),
            (200, None, range(0)),
            (150, 1000, range(150, 200)),
        ],
    )
    def test_a_range_is_read_exactly(self, log: LocalLog, start: int, end: int | None, expected: range) -> None:
        assert numbers(self.filled(log), 0, start, end) == [(n, n) for n in expected]

    def test_small_appends_are_read_as_large_batches(self, log: LocalLog) -> None:
        self.filled(log, groups=100, size=2)
        assert [batch.num_rows for batch in log.read(0, 0)] == [200]
        assert all(batch.num_rows <= 60 for batch in log.read(0, 0, max_batch_records=60))

    def test_it_goes_on_where_it_was_after_closing(self, log: LocalLog, tmp_path: Path) -> None:
        self.filled(log, groups=3)
        again = self.open(tmp_path / "log")
        with again.writer("web") as writer:
            assert writer.recovered is None
            assert writer.append(numbered([30])) == range(30, 31)
        assert numbers(again) == [(n, n) for n in range(31)]

    def test_each_worker_of_each_source_has_a_partition_of_its_own(self, log: LocalLog, tmp_path: Path) -> None:
        for source, worker in [("web", 0), ("web", 1), ("files", 0), ("web", 0)]:
            with log.writer(source, worker) as writer:
                writer.append(numbered([writer.partition]))
        web, second, files = PartitionOwner("web", 0), PartitionOwner("web", 1), PartitionOwner("files", 0)
        assert self.open(tmp_path / "log").partitions() == {0: web, 1: second, 2: files}
        assert log.partitions(["files"]) == {2: files}
        assert [log.bounds(p).end for p in range(3)] == [2, 1, 1]

    def test_a_partition_has_one_writer(self, log: LocalLog, tmp_path: Path) -> None:
        with log.writer("web"):
            with pytest.raises(LogError, match="PEN-LOG-001"):
                log.writer("web")
            assert "PEN-LOG-001" in self._writer_elsewhere(tmp_path / "log")
        assert self._writer_elsewhere(tmp_path / "log") == "0"

    def _writer_elsewhere(self, directory: Path) -> str:
        """What another process gets when it asks for the writer."""
        script = (
            "import sys; from pathlib import Path; from penstock.log.local_log import LocalLog\n"
            "try: print(LocalLog(Path(sys.argv[1])).writer('web').partition)\n"
            "except Exception as error: print(error)"
        )
        command = [sys.executable, "-c", script, str(directory)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def test_looking_at_a_log_that_is_not_there_creates_nothing(self, tmp_path: Path) -> None:
        log = self.open(tmp_path / "none")
        assert log.partitions() == {}
        assert log.usage() == {}
        assert log.holds.get() == {}
        assert not (tmp_path / "none").exists()

    def test_a_partition_that_is_not_there_is_an_error(self, log: LocalLog) -> None:
        with pytest.raises(LogError, match=r"PEN-LOG-005.*no partition 7"):
            log.bounds(7)

    def test_entries_of_another_shape_are_refused(self, log: LocalLog) -> None:
        with log.writer("web") as writer:
            with pytest.raises(LogError, match="PEN-LOG-009"):
                writer.append(pa.record_batch({"data": [b"x"]}))
            assert writer.append(numbered([0])) == range(1)

    def test_an_append_that_is_too_large_is_refused_whole(self, log: LocalLog) -> None:
        with log.writer("web") as writer:
            with pytest.raises(LogError, match="PEN-LOG-002"):
                writer.append(numbered(range(2), size=33 * 2**20))
            assert writer.append(numbered([0])) == range(1)
        assert numbers(log) == [(0, 0)]

    def test_records_are_fetched_by_pointer_in_order_and_once(self, log: LocalLog) -> None:
        self.filled(log)
        with log.writer("other") as writer:
            writer.append(numbered(range(1000, 1020)))
        pointers = [(1, 3), (0, 199), (0, 0), (0, 57), (0, 58), (1, 3), (0, 5000)]
        expected = [(0, 0, 0), (0, 57, 57), (0, 58, 58), (0, 199, 199), (1, 3, 1003)]
        as_table = pa.table({"partition": [p for p, _ in pointers], "offset": [o for _, o in pointers]})
        for asked in (pointers, as_table):
            fetch = log.fetch(asked)
            batches = list(fetch)
            assert all(batch.schema.equals(RECORD_SCHEMA) for batch in batches)
            assert [(r.partition, r.offset, number(r.data)) for b in batches for r in records(b) if r.data] == expected
            assert fetch.missing.to_pylist() == [{"partition": 0, "offset": 5000}]

    def test_fetching_nothing_gives_nothing(self, log: LocalLog) -> None:
        fetch = self.filled(log).fetch([])
        assert (list(fetch), fetch.missing.num_rows) == ([], 0)

    def test_pointers_into_a_partition_that_is_not_there_are_missing(self, log: LocalLog) -> None:
        fetch = self.filled(log).fetch([(7, 3), (0, 1), (7, 1)])
        assert [r.offset for batch in fetch for r in records(batch)] == [1]
        assert fetch.missing.to_pylist() == [{"partition": 7, "offset": 1}, {"partition": 7, "offset": 3}]

    def test_what_is_fetched_comes_in_batches_of_bounded_size(self, log: LocalLog) -> None:
        with log.writer("web") as writer:
            for first in range(0, 60, 2):
                writer.append(numbered(range(first, first + 2), size=2**20))
        batches = list(log.fetch((0, n) for n in range(60)))
        assert [r.offset for batch in batches for r in records(batch)] == list(range(60))
        assert all(batch.nbytes < 16 * 2**20 for batch in batches)
        assert 1 < len(batches) < 30

    @pytest.mark.parametrize("start", [0, 3, 10, 195])
    @pytest.mark.parametrize("limit", [1, 7, 10, 55, 1000])
    def test_a_batch_limited_by_records_has_exactly_as_many(self, log: LocalLog, start: int, limit: int) -> None:
        assert self.filled(log).advance(0, start, max_records=limit) == min(start + limit, 200)

    @pytest.mark.parametrize("limit", [1, 500, 5000, 10**9])
    def test_batches_limited_by_bytes_always_move_on_and_lose_nothing(self, log: LocalLog, limit: int) -> None:
        self.filled(log)
        start, seen = 0, []
        while (end := log.advance(0, start, max_bytes=limit)) > start:
            seen += numbers(log, 0, start, end)
            size = sum(b.drop_columns(["partition", "offset", "item"]).nbytes for b in log.read(0, start, end))
            assert limit < 5000 or size <= limit
            start = end
        assert seen == [(n, n) for n in range(200)]

    def test_there_is_no_batch_past_the_end(self, log: LocalLog) -> None:
        assert self.filled(log).advance(0, 200, max_records=10) == 200

    @pytest.mark.parametrize(
        ("start", "end", "pieces"), [(0, 200, 4), (0, 200, 1), (13, 177, 3), (5, 6, 4), (0, 200, 999)]
    )
    def test_a_range_is_cut_into_stretches_without_gap_or_overlap(
        self, log: LocalLog, start: int, end: int, pieces: int
    ) -> None:
        stretches = self.filled(log).reader(0).split(start, end, pieces)
        assert len(stretches) <= pieces
        assert [stretches[0][0], *(stop for _, stop in stretches)] == [*(first for first, _ in stretches), end]
        assert stretches[0][0] == start

    def test_stretches_are_about_equally_large(self, log: LocalLog) -> None:
        sizes = [end - start for start, end in self.filled(log).reader(0).split(0, 200, 4)]
        assert len(sizes) == 4
        assert all(40 <= size <= 60 for size in sizes)

    def test_an_empty_range_has_no_stretches(self, log: LocalLog) -> None:
        assert self.filled(log).reader(0).split(50, 50, 4) == []

    @pytest.mark.parametrize(("seconds", "offset"), [(-5, 0), (0, 0), (0.5, 1), (57, 57), (198.2, 199), (199.1, 200)])
    def test_the_first_record_at_or_after_a_time_is_found(self, log: LocalLog, seconds: float, offset: int) -> None:
        assert self.filled(log).offset_at(0, START + timedelta(seconds=seconds)) == offset

    @pytest.mark.parametrize(
        ("since", "until", "expected"),
        [
            (None, None, range(200)),
            (57, None, range(57, 200)),
            (None, 3.5, range(4)),
            (10, 20, range(10, 20)),
            (10, 10, range(0)),
            (20, 10, range(0)),
            (500, None, range(0)),
        ],
    )
    def test_a_range_of_times_is_read(
        self, log: LocalLog, since: float | None, until: float | None, expected: range
    ) -> None:
        self.filled(log)
        first, last = (None if s is None else START + timedelta(seconds=s) for s in (since, until))
        found = [o for batch in log.read_times(0, first, last) for o in batch.column("offset").to_pylist()]
        assert found == list(expected)

    def test_time_is_found_although_records_came_out_of_order(self, log: LocalLog) -> None:
        with log.writer("web") as writer:
            writer.append(numbered([5, 3, 9]))
            writer.append(numbered([4, 7, 100]))
        assert [log.offset_at(0, START + timedelta(seconds=s)) for s in (4, 6, 10, 101)] == [0, 2, 5, 6]

    def test_holds_are_kept_per_consumer(self, log: LocalLog, tmp_path: Path) -> None:
        log.holds.set("warehouse", {0: 5, 3: 9})
        log.holds.set("lake", {0: 2})
        log.holds.set("lake", {0: 4})
        assert self.open(tmp_path / "log").holds.get() == {"lake": {0: 4}, "warehouse": {0: 5, 3: 9}}

    def test_an_offset_that_a_consumer_has_seen_is_never_given_again(self, log: LocalLog) -> None:
        self.filled(log, groups=1)
        log.holds.set("warehouse", {0: 25})
        with log.writer("web") as writer:
            assert writer.append(numbered([10, 11])) == range(25, 27)
        assert numbers(log) == [*((n, n) for n in range(10)), (25, 10), (26, 11)]
        assert numbers(log, 0, 12, 26) == [(25, 10)]
        assert log.advance(0, 8, max_records=3) == 26

    def test_what_was_acknowledged_before_something_else_was_sent_is_older_in_every_partition(
        self, log: LocalLog
    ) -> None:
        """Also if its writer was opened earlier or later, and if one was closed in between."""
        sent: list[tuple[int, int]] = []
        with log.writer("web", 0) as zero, log.writer("files") as files:
            for turn in range(6):
                for writer in (files, zero) if turn % 2 else (zero, files):
                    sent += [(writer.partition, offset) for offset in writer.append(numbered(range(2)))]
                with log.writer("web", 1) as one:
                    sent += [(one.partition, offset) for offset in one.append(numbered(range(3)))]
        stop = ends(log)
        assert sum(stop.values()) == len(sent)
        for size in range(1, len(sent) + 1):
            reached = beginning(log, {}, stop, size, None)
            taken = {(p, offset) for p, end in reached.items() for offset in range(end)}
            assert taken == set(sent[:size])
        partitions, offsets = np.array(sent).T
        assert (np.diff(RangeOrder(log, {p: (0, end) for p, end in stop.items()}).ranks(partitions, offsets)) > 0).all()

    def test_retention_removes_only_whole_segments_below_the_floor(self, tmp_path: Path) -> None:
        log = self.filled(self.open(tmp_path / "log", segment_bytes=4096, retention={"max_age": "1h"}))
        later = START + timedelta(days=1)
        assert log.apply_retention({}, later) == []
        removed = log.apply_retention({0: 101}, later)
        oldest = log.bounds(0).oldest
        assert removed
        assert [segment.base for segment in removed] == sorted(segment.base for segment in removed)
        assert removed[-1].end == oldest <= 101
        assert numbers(log) == [(n, n) for n in range(oldest, 200)]
        assert log.bounds(0).end == 200

    def test_retention_never_takes_the_segment_that_is_being_written(self, tmp_path: Path) -> None:
        log = self.filled(self.open(tmp_path / "log", retention={"max_age": "1h"}))
        assert log.apply_retention({0: 200}, START + timedelta(days=1)) == []

    def test_retention_keeps_what_is_young_enough(self, tmp_path: Path) -> None:
        log = self.filled(self.open(tmp_path / "log", segment_bytes=4096, retention={"max_age": "60s"}))
        log.apply_retention({0: 200}, START + timedelta(seconds=160))
        assert 60 < log.bounds(0).oldest <= 100

    def test_retention_by_size_removes_the_oldest_first(self, tmp_path: Path) -> None:
        log = self.filled(
            self.open(tmp_path / "log", segment_bytes=4096, retention={"max_age": None, "max_bytes": 12000})
        )
        before = log.usage()[0].bytes
        removed = log.apply_retention({0: 200}, START)
        after = log.usage()[0]
        assert before - sum(segment.bytes for segment in removed) == after.bytes <= 12000
        assert after.bytes > 12000 - 4096
        assert after.records == 200 - log.bounds(0).oldest

    def test_usage_counts_bytes_segments_and_records(self, log: LocalLog) -> None:
        usage = self.filled(log).usage()[0]
        assert (usage.owner, usage.records) == (PartitionOwner("web", 0), 200)
        assert usage.segments > 1
        assert usage.bytes > 200

    @pytest.mark.parametrize("compression", ["lz4", "zstd", "none"])
    @pytest.mark.parametrize("fsync", ["always", "never", {"interval": "1ms"}])
    def test_every_way_of_writing_reads_back(self, tmp_path: Path, compression: str, fsync: object) -> None:
        log = self.filled(self.open(tmp_path / "log", compression=compression, fsync=fsync, segment_bytes=4096))
        assert numbers(log) == [(n, n) for n in range(200)]

    def test_what_was_written_in_one_way_goes_on_in_another(self, tmp_path: Path) -> None:
        for turn, compression in enumerate(["lz4", "none", "zstd"]):
            with self.open(tmp_path / "log", compression=compression).writer("web") as writer:
                writer.append(numbered(range(turn * 500, turn * 500 + 500)))
        assert numbers(self.open(tmp_path / "log")) == [(n, n) for n in range(1500)]


def config(**options: object) -> LogConfig:
    return LogConfig.model_validate(options)
