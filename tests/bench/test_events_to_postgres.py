"""The benchmark's events are what it says they are, and each way to load them leaves every row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import orjson
import psycopg
import pytest

from bench.bare_copy import copy_and_merge, copy_rows, export
from bench.bare_read import json_types, load_lines
from bench.clickstream import FRAME, KEY, LEAVES, PARTITIONS, Clickstream, Written, write
from bench.dlt_load import DATASET, Disposition, Settings, Warehouse, seconds_of_dlt
from bench.to_the_end import deliver
from penstock.log.local_log import LocalLog
from tests.support.postgres import postgres

EVENTS = 10_000
OPENING = PARTITIONS * FRAME


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write(Clickstream(EVENTS, OPENING), tmp_path_factory.mktemp("clickstream") / "events", "web")


@pytest.fixture(scope="module")
def parsed(events: Written) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in events.lines.read_bytes().splitlines()]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as found:
        yield found


def test_events_have_the_promised_leaves_and_size(events: Written, parsed: list[dict[str, object]]) -> None:
    assert {_leaves(event) - ("props" in event) for event in parsed} == {LEAVES}
    assert 650 <= events.bytes / events.events <= 800
    assert _share("props" in event for event in parsed) == pytest.approx(0.05, abs=0.01)


def test_conflicts_begin_after_the_opening(events: Written, parsed: list[dict[str, object]]) -> None:
    conflicts = [number for number, event in enumerate(parsed) if isinstance(event["quantity"], str)]
    assert len(conflicts) == events.conflicts
    assert events.conflicts / EVENTS == pytest.approx(0.01, abs=0.005)
    assert min(conflicts) >= OPENING


def test_a_duplicate_has_an_earlier_id_and_other_values(events: Written, parsed: list[dict[str, object]]) -> None:
    seen: dict[object, bytes] = {}
    repeated = 0
    for event in parsed:
        identity, text = _object(event["eventn_ctx"])["event_id"], orjson.dumps(event)
        repeated += identity in seen
        assert seen.get(identity) != text
        seen[identity] = text
    assert len(seen) == events.distinct
    assert repeated / EVENTS == pytest.approx(0.10, abs=0.015)


def test_new_fields_keep_coming_until_the_end(events: Written, parsed: list[dict[str, object]]) -> None:
    first_seen: dict[str, int] = {}
    for number, event in enumerate(parsed):
        for name in _object(event.get("props", {})):
            first_seen.setdefault(name, number)
    assert len(first_seen) == len(events.extra) == events.columns - LEAVES
    assert len(first_seen) > 30
    assert max(first_seen.values()) > EVENTS * 0.8


def test_the_same_numbers_give_the_same_events(events: Written, tmp_path: Path) -> None:
    again = write(Clickstream(EVENTS, OPENING), tmp_path / "again", "web")
    assert again.lines.read_bytes() == events.lines.read_bytes()


def test_the_log_holds_every_line_in_two_partitions(events: Written) -> None:
    log = LocalLog(events.log)
    records = [
        text
        for partition in log.partitions()
        for batch in log.read(partition, 0, log.bounds(partition).end)
        for text in batch.column("data").to_pylist()
    ]
    assert len(log.partitions()) == 2
    assert sorted(records) == sorted(events.lines.read_bytes().splitlines())


def test_finished_rows_come_back_whole_from_a_bare_copy(url: str, tmp_path: Path) -> None:
    rows = [("a", 1, None), ("b", 2, 'x,\n"y"'), ("a", 3, ""), ("c", None, "z")]
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE events (id text, n bigint, note text)")
        connection.cursor().executemany("INSERT INTO events VALUES (%s, %s, %s)", rows)
    finished = export(url, "id", tmp_path / "finished")
    for copy, left in ((copy_rows, rows), (copy_and_merge, rows[1:])):
        with psycopg.connect(url) as connection:
            connection.execute("DROP TABLE events")
        assert copy(url, finished) > 0
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT * FROM events ORDER BY ctid").fetchall() == left
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE events")


def test_duckdb_reads_every_line(events: Written, tmp_path: Path) -> None:
    database = tmp_path / "lines.duckdb"
    load_lines(events.lines, json_types(events.lines), database)
    assert _counted(database, "events") == EVENTS


def test_dlt_merges_by_the_same_key(events: Written, url: str, tmp_path: Path) -> None:
    where = url.replace("@", ":none@", 1)
    assert (
        seconds_of_dlt(events.lines, EVENTS, tmp_path, Warehouse.POSTGRES, where, Disposition.MERGE, Settings.TUNED) > 0
    )
    with psycopg.connect(url) as connection:
        assert connection.execute(f"SELECT count(*) FROM {DATASET}.events").fetchall() == [(events.distinct,)]


def test_a_run_to_the_end_is_timed_weighed_and_counted(events: Written, tmp_path: Path) -> None:
    options = {"type": "duckdb", "path": "./warehouse.duckdb", "table": "events"}
    run = deliver(events.log, tmp_path, options, OPENING, EVENTS)
    assert len(run.batches) == 3
    assert 0 < run.seconds < run.command_seconds
    assert all(mib > 10 for mib in run.peak.values())
    assert _counted(tmp_path / "warehouse.duckdb", "events") == EVENTS
    assert _counted(tmp_path / "warehouse.duckdb", "events WHERE _unmapped IS NOT NULL") == events.conflicts
    assert _counted(tmp_path / "warehouse.duckdb", f"(SELECT DISTINCT {KEY} FROM events)") == events.distinct


def test_a_run_that_cannot_be_says_why(events: Written, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="there is no destination"):
        deliver(events.log, tmp_path, {"type": "nowhere"}, OPENING, EVENTS)


def _leaves(value: object) -> int:
    return sum(map(_leaves, value.values())) if isinstance(value, dict) else 1


def _share(found: Iterator[bool]) -> float:
    return sum(found) / EVENTS


def _object(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def _counted(database: Path, rows: str) -> int:
    with duckdb.connect(database, read_only=True) as connection:
        ((count,),) = connection.execute(f"SELECT count(*) FROM {rows}").fetchall()
    return int(count)
