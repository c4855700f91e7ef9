"""Replay: failed records go through their own route again, once, whatever is killed in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.failed.failed_items import FailedItem
from penstock.engine.failed.failed_store import FailedEntry
from penstock.engine.failed.replay import repeated_copies, replay
from penstock.engine.ledger import Extent
from penstock.engine.pipeline import Pipeline
from penstock.engine.route_sources import replay_source
from penstock.errors import LogError
from penstock.record import Header, Record, entries, placed, records
from tests.engine.projects import pipeline


def with_failures(folder: Path, count: int = 3) -> tuple[Pipeline, list[FailedEntry]]:
    found = pipeline(folder)
    batch = placed(entries(Record(b'{"n": %d}' % n, namespace="web") for n in range(count)), 0, 0)
    failed = [FailedItem(record, 0, "map", "bad", "no") for record in records(batch)]
    extent = found.failed_store.append("a", 1, Extent(), failed)
    return found, list(found.failed_store.read("a", extent))


def replayed(found: Pipeline) -> list[bytes | None]:
    return [
        record.data
        for partition in found.log.partitions([replay_source("a")])
        for batch in found.log.read(partition, 0)
        for record in records(batch)
    ]


def test_only_its_own_route_reads_a_replayed_record(tmp_path: Path) -> None:
    found, failed = with_failures(tmp_path)
    assert replay("a", failed, found.log, found.ledger) == 3
    assert replayed(found) == [b'{"n": 0}', b'{"n": 1}', b'{"n": 2}']
    (partition,) = found.log.partitions([replay_source("a")])
    assert partition in found.log.partitions(found.sources_of("a"))
    assert partition not in found.log.partitions(found.sources_of("b"))


def test_replaying_twice_is_replaying_once(tmp_path: Path) -> None:
    found, failed = with_failures(tmp_path)
    replay("a", failed[:2], found.log, found.ledger)
    assert replay("a", failed, found.log, found.ledger) == 1
    assert replayed(found) == [b'{"n": 0}', b'{"n": 1}', b'{"n": 2}']


@pytest.mark.parametrize("reached_the_log", [True, False])
def test_a_replay_that_was_killed_is_finished_or_done_again(tmp_path: Path, reached_the_log: bool) -> None:
    found, failed = with_failures(tmp_path)
    writer = found.log.writer(replay_source("a"))
    found.ledger.begin_replay("a", writer.partition, writer.next_offset, [entry.id for entry in failed])
    if reached_the_log:
        writer.append(entries(entry.record for entry in failed))
    writer.close()
    replay("a", failed, found.log, found.ledger)
    assert replayed(found) == [b'{"n": 0}', b'{"n": 1}', b'{"n": 2}']
    assert set(found.ledger.settled_entries("a")) == {0, 1, 2}


def test_two_replays_at_once_are_refused(tmp_path: Path) -> None:
    found, failed = with_failures(tmp_path)
    writer = found.log.writer(replay_source("a"))
    with pytest.raises(LogError):
        replay("a", failed, found.log, found.ledger)
    writer.close()


def test_copies_of_items_are_told_apart_and_come_with_their_record(tmp_path: Path) -> None:
    found = pipeline(tmp_path)
    with found.log.writer("web") as writer:
        writer.append(entries(Record(b"{}", namespace="web") for _ in range(2)))
        web = writer.partition

    def copy(offset: int, item: int = 0) -> Record:
        of_item = {Header.REPLAY_ITEM: str(item)} if item else {}
        return Record(b"{}", "web", headers={Header.REPLAY_OF: f"{web}:{offset}", **of_item})

    with found.log.writer(replay_source("a")) as writer:
        writer.append(entries([copy(0, 1), copy(0, 2), copy(0, 1), copy(1, 5), copy(1)]))
        copies = writer.partition
    behind_originals = {web: 2, copies: 0}
    assert repeated_copies("a", found.log, behind_originals) == {copies: [3, 0]}
    before_the_first = {web: 0, copies: 0}
    assert repeated_copies("a", found.log, before_the_first) == {copies: [4, 3, 2, 1, 0]}
    between = {web: 1, copies: 1}
    assert repeated_copies("a", found.log, between) == {copies: [4, 3]}
