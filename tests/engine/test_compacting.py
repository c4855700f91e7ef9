"""Compaction beside delivery: when it is worth it, never in the way, and never over what a route needs."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Event

import pytest

from penstock.engine.background_compaction import BackgroundCompaction
from penstock.engine.engine import Engine
from penstock.engine.pipeline import Pipeline
from penstock.log.maintenance.maintenance_lock import lock_for_maintenance
from penstock.testing.waiting import eventually
from tests.engine.projects import append, commit, pipeline

CONFIG = """\
name: shop
log: {segment_bytes: 4KB, compaction: %s}
sources:
  web: {type: file, path: ./web.ndjson}
  other: {type: file, path: ./other.ndjson}
routes:
  a: {from: web, to: {type: "null"}}
"""
RECORDS = 60


def opened(folder: Path, compaction: str = "true", delivered: int = RECORDS) -> Pipeline:
    """Sixty records of one key, in many segments, in two partitions; route ``a`` reads the first."""
    found = pipeline(folder, CONFIG % compaction)
    for source in ("web", "other"):
        append(found, source, [b'{"n": %d, "pad": "%s"}' % (n, b"x" * 500) for n in range(RECORDS)])
    found.ledger.open_route("a", {0: 0})
    commit(found, "a", 0, delivered)
    found.log.holds.set("a", {0: delivered})
    return found


def records(found: Pipeline) -> list[int]:
    return [usage.records for usage in found.log.usage().values()]


def test_an_engine_compacts_what_its_routes_are_done_with(tmp_path: Path) -> None:
    found = opened(tmp_path, delivered=40)
    Engine(found)._apply_retention()
    eventually(lambda: sum(records(found)) < RECORDS, "both partitions are compacted")
    kept = [offset for batch in found.log.read(0, 40) for offset in batch.column("offset").to_pylist()]
    assert kept == list(range(40, RECORDS))


def test_without_the_option_an_engine_compacts_nothing(tmp_path: Path) -> None:
    found = opened(tmp_path, "false")
    Engine(found)._apply_retention()
    assert records(found) == [RECORDS, RECORDS]


def test_a_run_is_told_and_the_next_has_nothing_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = opened(tmp_path)
    compacting = BackgroundCompaction(found.log)
    with caplog.at_level(logging.INFO, "penstock"):
        compacting.run(found.floors())
        assert [message.split(":")[0] for message in caplog.messages] == ["compaction", "compaction"]
        before = records(found)
        assert max(before) < RECORDS / 2
        caplog.clear()
        compacting.run(found.floors())
    assert (caplog.messages, records(found)) == ([], before)


def test_a_partition_that_cannot_be_compacted_does_not_keep_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = opened(tmp_path)
    with lock_for_maintenance(found.log.partition_dir(0)):
        BackgroundCompaction(found.log).run(found.floors())
    assert records(found)[0] == RECORDS
    assert records(found)[1] < RECORDS
    assert "partition 0 stays as it is: PEN-LOG-013" in caplog.text


def test_a_run_to_the_end_frees_the_disk_before_it_ends_also_if_a_route_failed(tmp_path: Path) -> None:
    text = (CONFIG % "true").replace("segment_bytes: 4KB", "segment_bytes: 4KB, retention: {max_age: 1ms}")
    text += "  halts: {from: other, on_error: stop, steps: [{where: n > 1}], to: {type: 'null'}}\n"
    found = pipeline(tmp_path, text)
    append(found, "web", [b'{"n": %d, "pad": "%s"}' % (n, b"x" * 500) for n in range(RECORDS)])
    append(found, "other", [b"nonsense " * 60] * RECORDS)
    assert not Engine(found, once=True).run(Event())
    web, other = (found.log.bounds(partition) for partition in (0, 1))
    assert web.oldest > 40
    assert other.oldest == 0
