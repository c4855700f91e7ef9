"""A backup is one moment of a pipeline, or nothing; a restore goes on right against whatever warehouse there is."""

from __future__ import annotations

import json
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import faults
from penstock.config.loading import load
from penstock.engine.backup import restore_backup
from penstock.engine.backup.create_backup import back_up
from penstock.engine.backup.manifest import MANIFEST, Manifest
from penstock.engine.backup.restore_backup import Restored, restore
from penstock.engine.history.route_history import History
from penstock.engine.processes.engine_lock import EngineLock
from penstock.errors import PenstockError
from penstock.log.local_log import LocalLog, PartitionOwner
from penstock.record import Record, entries
from tests.engine.copies import ONE_ROUTE, OPERATOR, Site

SMALL_SEGMENTS = ONE_ROUTE.replace("sources:", "log: {segment_bytes: 4KB}\nsources:")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, SMALL_SEGMENTS)


def wanted(*ranges: range) -> list[int]:
    return sorted(n for numbers in ranges for n in numbers if n % 10 != 9)


def make_backup(site: Site, name: str = "backup") -> Manifest:
    pipeline = site.open()
    try:
        return back_up(pipeline, site.folder / name)
    finally:
        pipeline.ledger.close()


def put_back(site: Site, name: str = "backup", force: bool = True) -> Restored:
    return restore(load(site.folder / "pipeline.yaml"), site.folder / name, OPERATOR, force)


def test_what_comes_after_a_restore_is_newer_than_all_that_was_put_back(site: Site) -> None:
    for first in range(0, 60, 10):
        site.append(range(first, first + 10), worker=first // 10 % 2)
    before = LocalLog(site.data / "log")
    reached = {partition: before.reader(partition).published_end() for partition in before.partitions()}
    make_backup(site)
    site.append(range(60, 70))
    put_back(site)
    after = LocalLog(site.data / "log")
    assert {partition: after.reader(partition).published_end() for partition in after.partitions()} == reached
    site.append(range(100, 110), worker=0)
    assert after.reader(0).stamp_at(reached[0].end) > max(reach.stamp for reach in reached.values())


def test_a_restored_pipeline_resumes_behind_what_a_newer_warehouse_has(site: Site) -> None:
    site.append(range(100))
    site.deliver(size=40)
    site.append(range(100, 130))
    make_backup(site)
    site.append(range(130, 200))
    site.deliver()
    done = put_back(site)
    assert done.before is not None
    assert [(route.route, route.adopted) for route in done.routes] == [("a", 30)]
    site.append(range(1000, 1050))
    assert site.deliver() == ""
    assert site.rows() == wanted(range(200), range(1000, 1050))
    assert site.totals() == (180, 162, 18, 0)


@pytest.mark.parametrize("newer", [False, True], ids=["empty", "older"])
def test_a_restore_says_what_a_warehouse_lacks_and_how_to_deliver_it(site: Site, newer: bool) -> None:
    site.append(range(50))
    site.deliver()
    warehouse = site.folder / "warehouse.duckdb"
    older = warehouse.read_bytes()
    site.append(range(50, 100))
    site.deliver()
    make_backup(site)
    warehouse.unlink()
    if newer:
        warehouse.write_bytes(older)
    (route,) = put_back(site).routes
    start = 50 if newer else 0
    assert f"lacks {90 - start * 9 // 10} rows" in route.missing
    assert f"penstock offset rewind a --to {start} --partition 0" in route.missing


def test_links_of_a_backup_that_was_killed_are_gone_after_the_next(site: Site) -> None:
    site.append(range(10))
    site.deliver()
    left = site.data / "checkpoints" / ".backup-abc" / "a-01234567"
    left.mkdir(parents=True)
    make_backup(site)
    assert list((site.data / "checkpoints").glob(".backup-*")) == []


def test_a_backup_made_while_everything_is_at_work_is_one_moment(site: Site) -> None:
    """What the copy's ledger counts as delivered is in the copy's log, which ends in a whole frame."""
    site.append(range(10))
    stop = threading.Event()

    def append() -> None:
        log = LocalLog(site.data / "log", load(site.folder / "pipeline.yaml").log)
        n = 10
        with log.writer("web") as writer:
            while not stop.is_set():
                writer.append(entries(Record(json.dumps({"n": n + i}).encode(), namespace="web") for i in range(7)))
                n += 7

    def deliver() -> None:
        while not stop.is_set():
            assert site.deliver() == ""

    workers = [threading.Thread(target=append), threading.Thread(target=deliver)]
    for worker in workers:
        worker.start()
    try:
        for number in range(3):
            make_backup(site, f"backup{number}")
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert site.deliver() == ""
    end = LocalLog(site.data / "log").bounds(0).end
    for number in range(3):
        put_back(site, f"backup{number}")
        copied = LocalLog(site.data / "log").bounds(0).end
        assert site.deliver() == ""
        # Whatever the copy has was delivered before: not a row is added by it.
        assert site.rows() == wanted(range(end))
        assert site.totals()[0] == copied


@pytest.mark.parametrize("point", ["backup.ledger_copied", "backup.file_copied@2", "backup.before_manifest"])
def test_a_backup_that_was_cut_short_is_none(site: Site, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site.append(range(20))
    site.deliver()
    with monkeypatch.context() as patch:
        patch.setattr(faults, "_armed", faults.parse(f"{point}=raise"))
        with pytest.raises(faults.InjectedFault):
            make_backup(site)
    assert not (site.folder / "backup").exists()
    with pytest.raises(PenstockError, match="PEN-BAK-001"):
        put_back(site, "backup.partial")
    make_backup(site)
    put_back(site)
    assert site.deliver() == ""
    assert site.rows() == wanted(range(20))


@pytest.mark.parametrize("point", ["restore.file_copied@2", "restore.before_rename", "restore.exchanged"])
def test_a_restore_that_was_cut_short_has_done_nothing_or_all(
    site: Site, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.append(range(20))
    site.deliver()
    make_backup(site)
    site.append(range(20, 40))
    with monkeypatch.context() as patch:
        patch.setattr(faults, "_armed", faults.parse(f"{point}=raise"))
        with pytest.raises(faults.InjectedFault):
            put_back(site)
    assert LocalLog(site.data / "log").bounds(0).end == (20 if point == "restore.exchanged" else 40)
    done = put_back(site)
    kept = [folder for folder in (done.before, done.left) if folder is not None]
    # What the first restore took the place of exists nowhere else: it is kept, and named.
    assert 40 in [LocalLog(folder / "log").bounds(0).end for folder in kept]
    assert sorted(kept) == sorted(site.folder.glob("data.*"))
    assert LocalLog(site.data / "log").bounds(0).end == 20
    assert site.deliver() == ""
    assert site.rows() == wanted(range(20))


def test_a_damaged_backup_is_refused(site: Site) -> None:
    site.append(range(20))
    site.deliver()
    make_backup(site)
    (segment,) = (site.folder / "backup" / "log" / "0").glob("*.seg")
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    with pytest.raises(PenstockError, match="PEN-BAK-013"):
        put_back(site)
    segment.unlink()
    with pytest.raises(PenstockError, match=r"PEN-BAK-013.*is missing"):
        put_back(site)
    (site.folder / "backup" / MANIFEST).unlink()
    with pytest.raises(PenstockError, match="PEN-BAK-001"):
        put_back(site)
    assert LocalLog(site.data / "log").bounds(0).end == 20


@pytest.mark.parametrize("killed", [False, True])
def test_the_archive_and_what_others_keep_in_data_dir_stay_there(
    site: Site, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of days that the log no longer has: they must not go with what an operator is told to remove."""
    site.append(range(20))
    make_backup(site)
    kept = [site.data / "archive" / "2026-03-01" / "incoming.tok=site.log.gz", site.data / "geo" / "city.mmdb"]
    for path in kept:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"kept")
    if killed:
        with monkeypatch.context() as patch:
            patch.setattr(faults, "_armed", faults.parse("restore.exchanged=raise"))
            with pytest.raises(faults.InjectedFault):
                put_back(site)
    done = put_back(site)
    assert [path.read_bytes() for path in kept] == [b"kept", b"kept"]
    assert done.before is not None
    assert {path.name for path in done.before.iterdir()} <= {"log", "ledger.db", "run"}


def test_a_route_that_cannot_be_asked_does_not_hide_where_the_former_data_is(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.append(range(20))
    make_backup(site)

    def refuse(*_: Any) -> None:
        raise PenstockError("PEN-ENG-072", "nobody knows of anything.", "See which routes there are.")

    monkeypatch.setattr(History, "check_target", refuse)
    done = put_back(site)
    assert done.before is not None
    assert "nobody knows" in done.routes[0].unknown


def test_a_pipeline_that_was_started_during_a_restore_keeps_its_data(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.append(range(20))
    site.deliver()
    make_backup(site)
    site.append(range(20, 40))
    copy, started = restore_backup._copy, []

    def copy_while_it_starts(*given: Any) -> None:
        copy(*given)
        started.append(site.open().log.writer("web"))

    monkeypatch.setattr(restore_backup, "_copy", copy_while_it_starts)
    with pytest.raises(PenstockError, match="PEN-BAK-014"):
        put_back(site)
    started[0].close()
    assert LocalLog(site.data / "log").bounds(0).end == 40


def test_a_link_to_another_disk_stays_one(site: Site) -> None:
    site.append(range(20))
    make_backup(site)
    disk = site.folder / "disk"
    disk.mkdir()
    site.data.rename(disk / "data")
    site.data.symlink_to(disk / "data")
    done = put_back(site)
    assert site.data.is_symlink()
    assert done.before is not None
    assert done.before.parent == disk
    assert LocalLog(site.data / "log").bounds(0).end == 20


def test_a_disk_of_its_own_is_refused_before_anything_is_copied(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.append(range(20))
    make_backup(site)
    monkeypatch.setattr(os.path, "ismount", lambda path: path == site.data)
    with pytest.raises(PenstockError, match="PEN-BAK-015"):
        put_back(site)
    assert list(site.folder.glob("data.*")) == []


def test_a_partition_that_was_just_being_made_can_be_written_after_a_restore(site: Site) -> None:
    site.append(range(20))
    LocalLog(site.data / "log")._allocate(PartitionOwner("web", 1))
    make_backup(site)
    put_back(site)
    site.append(range(20, 30), worker=1)
    assert LocalLog(site.data / "log").bounds(1).end == 10


@pytest.mark.parametrize("room", [2**12, 2**17])
def test_a_full_disk_ends_a_backup_in_words_and_leaves_nothing_of_it(site: Site, room: int) -> None:
    site.append(range(20))
    site.deliver()
    pipeline = site.open()
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, most[1]))
    try:
        with pytest.raises(PenstockError, match="PEN-BAK-006"):
            back_up(pipeline, site.folder / "backup")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
        pipeline.ledger.close()
    assert list(site.folder.glob("backup*")) == []


def test_two_at_once_do_not_take_each_others_files(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second would remove what the first has copied, and the first would go on with the rest and call it whole."""
    site.append(range(20))
    site.deliver()
    refused: list[str] = []

    def interrupt(second: Callable[[Site], object], point: str) -> None:
        def reach(reached: str) -> None:
            if reached == point and not refused:
                refused.append("")
                with pytest.raises(PenstockError) as told:
                    second(site)
                refused[0] = told.value.code

        monkeypatch.setattr(faults, "reach", reach)

    interrupt(make_backup, "backup.before_manifest")
    make_backup(site)
    assert refused == ["PEN-BAK-016"]
    refused.clear()
    interrupt(put_back, "restore.file_copied")
    put_back(site)
    assert refused == ["PEN-BAK-016"]
    assert LocalLog(site.data / "log").bounds(0).end == 20


def test_a_full_disk_ends_a_restore_in_words_and_leaves_nothing_of_it(site: Site) -> None:
    site.append(range(20))
    site.deliver()
    make_backup(site)
    site.append(range(20, 40))
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**12, most[1]))
    try:
        with pytest.raises(PenstockError, match="PEN-BAK-012"):
            put_back(site)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert list(site.folder.glob("data.*")) == []
    assert LocalLog(site.data / "log").bounds(0).end == 40


def test_a_backup_without_the_failed_records_that_the_ledger_counts_is_none(site: Site) -> None:
    with LocalLog(site.data / "log").writer("web") as writer:
        writer.append(entries([Record(b"no JSON", namespace="web")]))
    site.deliver()
    (store,) = (site.data / "failed").glob("*.log")
    store.rename(site.folder / "store")
    with pytest.raises(PenstockError, match=r"PEN-BAK-004.*failed.dst=a.log has 0 bytes"):
        make_backup(site)
    assert not (site.folder / "backup").exists()


def test_data_that_is_there_is_not_replaced_unasked(site: Site) -> None:
    site.append(range(20))
    site.deliver()
    make_backup(site)
    with pytest.raises(PenstockError, match="PEN-BAK-011"):
        put_back(site, force=False)
    with site.open().log.writer("web"), pytest.raises(PenstockError, match="PEN-BAK-014"):
        put_back(site)
    engine = EngineLock(site.data / "run")
    engine.acquire()
    with pytest.raises(PenstockError, match=rf"PEN-BAK-014.*pid {os.getpid()}"):
        put_back(site)
    engine.release()
    with pytest.raises(PenstockError, match="PEN-BAK-005"):
        make_backup(site)
