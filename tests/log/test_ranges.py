"""Which offsets a batch covers, without Spark."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from penstock.errors import LogError
from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import Stretch, next_offsets, offsets_from_json, read_options, stretches
from penstock.log.spark_source import LogSource, LogStreamReader, StretchPartition
from tests.log.samples import numbered


@pytest.fixture
def log(tmp_path: Path) -> LocalLog:
    """Two partitions of source ``web`` with 100 and 10 records, one of ``files`` with 50."""
    log = LocalLog(tmp_path)
    for source, worker, count in [("web", 0, 100), ("web", 1, 10), ("files", 0, 50)]:
        with log.writer(source, worker) as writer:
            for first in range(0, count, 5):
                writer.append(numbered(range(first, first + 5)))
    return log


def stream(log: LocalLog, **options: object) -> LogStreamReader:
    given = {name: str(value) for name, value in options.items()}
    reader = LogSource({"path": str(log.directory), **given}).streamReader(LogSource({"path": "x"}).schema())
    assert isinstance(reader, LogStreamReader)
    return reader


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({}, {"0": 0, "1": 0, "2": 0}),
        ({"startingOffsets": "latest"}, {"0": 100, "1": 10, "2": 50}),
        ({"startingOffsets": '{"0": 12, "2": 999}'}, {"0": 12, "1": 0, "2": 50}),
        ({"sources": "files"}, {"2": 0}),
        ({"sources": "files, web", "startingTimestamp": "2030-01-01T00:00:20Z"}, {"0": 20, "1": 10, "2": 20}),
    ],
)
def test_a_stream_starts_where_it_is_told(log: LocalLog, options: dict[str, str], start: dict[str, int]) -> None:
    assert stream(log, **options).initialOffset() == start


@pytest.mark.parametrize(
    ("max_records", "end"),
    [
        (None, {0: 100, 1: 10, 2: 50}),
        (30, {0: 30, 1: 0, 2: 0}),
        (107, {0: 100, 1: 7, 2: 0}),
        (112, {0: 100, 1: 10, 2: 2}),
        (1000, {0: 100, 1: 10, 2: 50}),
        (1, {0: 1, 1: 0, 2: 0}),
    ],
)
def test_a_batch_takes_what_is_oldest_over_all_partitions(
    log: LocalLog, max_records: int | None, end: dict[int, int]
) -> None:
    start, limit = {0: 0, 1: 0, 2: 0}, {0: 100, 1: 10, 2: 50}
    assert next_offsets(log, start, limit, max_records, None) == end


def test_batches_of_any_limit_come_to_the_end(log: LocalLog) -> None:
    for options in ({"maxRecordsPerTrigger": 7}, {"maxBytesPerTrigger": 900}, {"maxBytesPerTrigger": 1}):
        reader = stream(log, **options)
        at, batches = reader.initialOffset(), 0
        while (end := reader.latestOffset(start=at, limit=reader.getDefaultReadLimit())) != at:
            at, batches = end, batches + 1
        assert at == {"0": 100, "1": 10, "2": 50}
        assert batches > 5


def test_all_available_passes_over_the_limits(log: LocalLog) -> None:
    reader = stream(log, maxRecordsPerTrigger=3)
    assert reader.latestOffset(start={}, limit=ReadAllAvailable()) == {"0": 100, "1": 10, "2": 50}


def test_the_limits_are_told_to_spark(log: LocalLog) -> None:
    assert stream(log).getDefaultReadLimit() == ReadAllAvailable()
    assert stream(log, maxBytesPerTrigger=5).getDefaultReadLimit() == ReadMaxBytes(5)
    assert stream(log, maxRecordsPerTrigger=3, maxBytesPerTrigger=5).getDefaultReadLimit() == ReadMaxRows(3)


def test_a_fixed_range_is_replayed_exactly_and_only_from_its_start(log: LocalLog) -> None:
    fixed = {"start": {"0": 5, "1": 0, "2": 0}, "end": {"0": 17, "1": 0, "2": 3}}
    reader = stream(log, fixedRange=json.dumps(fixed), maxRecordsPerTrigger=1)
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(start=fixed["start"], limit=limit) == fixed["end"]
    assert reader.latestOffset(start={"0": 6, "1": 0, "2": 0}, limit=limit) != fixed["end"]


def test_a_partition_that_appears_later_is_read_from_its_beginning(log: LocalLog) -> None:
    reader = stream(log, startingOffsets="latest")
    start = reader.initialOffset()
    assert reader.latestOffset(start=start, limit=ReadAllAvailable()) == start
    with log.writer("new") as writer:
        writer.append(numbered(range(4)))
    end = reader.latestOffset(start=start, limit=ReadAllAvailable())
    assert end == {**start, "3": 4}
    assert [p.stretch for p in reader.partitions(start=start, end=end)] == [Stretch(3, 0, 4)]


def test_available_now_stops_at_what_was_there_when_it_began(log: LocalLog) -> None:
    reader = stream(log)
    reader.prepareForTriggerAvailableNow()
    with log.writer("web") as writer:
        writer.append(numbered(range(100, 120)))
    assert reader.latestOffset(start={}, limit=ReadAllAvailable())["0"] == 100
    assert reader.reportLatestOffset()["0"] == 120


def test_a_partition_whose_source_left_the_route_stays_where_it_was(log: LocalLog) -> None:
    reader = stream(log, sources="files")
    assert reader.latestOffset(start={"0": 40, "2": 50}, limit=ReadAllAvailable()) == {"0": 40, "2": 50}


def test_a_batch_is_cut_into_tasks_by_bytes(tmp_path: Path) -> None:
    log = LocalLog(tmp_path)
    with log.writer("web") as writer:
        for first in range(0, 8000, 500):
            writer.append(numbered(range(first, first + 500), size=1000))
    cut = stretches(log, {}, {0: 8000}, tasks=4)
    assert cut == [Stretch(0, first, first + 2000) for first in range(0, 8000, 2000)]
    assert stretches(log, {0: 0}, {0: 700}, tasks=4) == [Stretch(0, 0, 700)]
    assert stretches(log, {0: 700}, {0: 700}, tasks=4) == []


def test_a_checkpoint_of_another_log_is_an_error(log: LocalLog) -> None:
    with pytest.raises(LogError, match="PEN-LOG-005"):
        stretches(log, {}, {7: 5}, tasks=2)


def test_reader_and_partitions_travel_to_a_task(log: LocalLog) -> None:
    reader = stream(log)
    list(reader.read(StretchPartition(Stretch(0, 0, 50))))
    again = pickle.loads(pickle.dumps(reader))
    [share] = pickle.loads(pickle.dumps(reader.partitions(start={}, end={"0": 100})))
    assert sum(batch.num_rows for batch in again.read(partition=share)) == 100


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path", ""),
        ("startingOffsets", "newest"),
        ("startingOffsets", "[1]"),
        ("startingOffsets", '{"a": 1}'),
        ("startingOffsets", '{"0": -1}'),
        ("endingOffsets", '{"0": "x"}'),
        ("startingTimestamp", "yesterday"),
        ("endingTimestamp", "99999999999999999999"),
        ("maxRecordsPerTrigger", "0"),
        ("maxBytesPerTrigger", "1MB"),
        ("fixedRange", '{"start": {}}'),
        ("tasks", "many"),
    ],
)
def test_a_wrong_option_says_what_is_expected(name: str, value: str) -> None:
    with pytest.raises(LogError, match=rf"PEN-LOG-011: option {name} .*Expected"):
        read_options({"path": "log", name: value})


def test_offsets_keep_their_numeric_order() -> None:
    assert list(offsets_from_json({"10": 1, "9": 2})) == [9, 10]
