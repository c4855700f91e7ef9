"""Creates a backup while the pipeline runs.

No copy may be ahead of what it refers to, so the order is: the progress of sources (it refers to the log), the ledger
(to the failed store and the log), the checkpoints, cut back to where that ledger stands, the failed store as far as it
counts, the holds, and at last the log, each partition up to its head at that moment. A partition's lineage is copied
after its records: an entry too many is cut off, one too few would ascribe records to the previous writer.

Meanwhile retention, compaction and repair are locked out of the log. Appends and deliveries go on.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from penstock import __version__, faults
from penstock.durable import sync_directory
from penstock.engine.backup.checkpoint_cut import LedgerPosition, cut_files, find_cut, link_files
from penstock.engine.backup.claimed_folder import claim_folder
from penstock.engine.backup.manifest import FileEntry, Manifest, copy_file, hash_file, sync_folders, too_short_error
from penstock.engine.layout import checkpoint_name
from penstock.engine.ledger.range_text import ranges_from_text
from penstock.engine.pipeline import Pipeline
from penstock.engine.spark.spark_checkpoints import has_state
from penstock.errors import PenstockError
from penstock.log.format.head import HEAD_FILE, pack, read_head
from penstock.log.format.log_files import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    index_path,
    replace_durably,
    segment_bases,
    segment_path,
)
from penstock.log.lineage import LINEAGE_FILE, read_lineage
from penstock.log.local_log import LocalLog
from penstock.log.maintenance.maintenance_lock import busy_error, lock_for_maintenance

ProgressCallback = Callable[[int, int], None]
"""Called with the bytes copied so far, and the bytes to copy, as far as known."""

LINKS = ".backup-"
"""Begins the name of a folder beside the checkpoints, with links to their files. No route's name begins so."""

LOCK_PATIENCE = 600.0
"""Seconds to wait for retention, compaction or repair to finish with a partition."""


def back_up(pipeline: Pipeline, target: Path, report_progress: ProgressCallback = lambda done, total: None) -> Manifest:
    """Copy the pipeline's data into a new or empty folder. The backup appears completely or not at all."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise PenstockError("PEN-BAK-005", f"{target} is there already.", "Name a folder that is new, or empty.")
    partial = target.with_name(f"{target.name}.partial")
    try:
        if partial.exists():
            with claim_folder(partial):
                shutil.rmtree(partial)
        partial.mkdir(parents=True, mode=0o700)
        with claim_folder(partial):
            manifest = _Backup(pipeline, partial, report_progress).make()
            faults.reach("backup.before_rename")
            partial.replace(target)
            sync_directory(target.parent)
    except (OSError, sqlite3.Error) as error:
        if isinstance(error, faults.InjectedFault):
            raise
        shutil.rmtree(partial, ignore_errors=True)
        raise PenstockError(
            "PEN-BAK-006",
            f"the backup to {target} was not finished: {error}.",
            "Make room or fix the permissions, then start it again; nothing of it is left.",
        ) from error
    return manifest


class _CopiedLedger(NamedTuple):
    extents: dict[str, int]
    """How many bytes of each route's failed file it counts."""
    positions: Sequence[LedgerPosition]


def _positions(ledger: sqlite3.Connection, scope: str) -> Iterator[LedgerPosition]:
    for route, generation in ledger.execute("SELECT route, generation FROM courses").fetchall():
        committed = dict(
            ledger.execute("SELECT partition, committed FROM offsets WHERE route = ?", (route,)).fetchall()
        )
        begun = "SELECT ranges FROM batches WHERE route = ? AND committed_at IS NULL"
        ends = {
            partition: end
            for (text,) in ledger.execute(begun, (route,)).fetchall()
            for partition, (_, end) in ranges_from_text(text).items()
        }
        yield LedgerPosition(checkpoint_name(route, scope, generation), committed, ends)


@dataclass
class _Backup:
    pipeline: Pipeline
    folder: Path
    report_progress: ProgressCallback
    files: dict[str, FileEntry] = field(default_factory=dict)
    done: int = 0
    total: int = 0

    def make(self) -> Manifest:
        layout, log = self.pipeline.layout, self.pipeline.log
        self.total = sum(usage.bytes for usage in log.usage().values())
        with ExitStack() as locks:
            for partition in log.partitions():
                locks.enter_context(_lock_partition(log.directory, partition))
            self._copy_tree(layout.root / "sources")
            extents = self._copy_ledger_and_state()
            for route, length in extents.items():
                if length:
                    self._copy_file(self.pipeline.failed_store.path(route), length)
            self._copy_tree(log.directory / "holds")
            # Partitions created since are unknown to everything copied so far, and have lost nothing yet.
            self._copy_file(log.directory / "partitions.json")
            for partition in LocalLog(self.folder / "log").partitions():
                self._copy_partition(log.partition_dir(partition))
        has_ledger = self.pipeline.config.ledger.url is None
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        manifest = Manifest(
            self.pipeline.config.name, made_at, __version__, self.pipeline.ledger.scope, has_ledger, self.files
        )
        sync_folders(self.folder)
        faults.reach("backup.before_manifest")
        manifest.write(self.folder)
        return manifest

    def _copy_ledger_and_state(self) -> dict[str, int]:
        """Copy the ledger at one moment, and the state of steps as it was then. Returns how many bytes of each route's
        failed file it counts."""
        if self.pipeline.config.ledger.url is not None:
            # It is not copied, and goes on: no state would fit.
            ledger = self.pipeline.ledger
            return {route: ledger.failed_extent(route).bytes for route in ledger.routes()}
        checkpoints = self.pipeline.layout.checkpoints.name
        for last_try in (False, False, True):
            copied = self._copy_ledger()
            faults.reach("backup.ledger_copied")
            # What an earlier try has copied is older than this ledger.
            shutil.rmtree(self.folder / checkpoints, ignore_errors=True)
            self.files = {name: entry for name, entry in self.files.items() if not name.startswith(f"{checkpoints}/")}
            if self._copy_state(copied.positions) or last_try:
                break
            # Spark has come too far meanwhile.
        return copied.extents

    def _copy_state(self, positions: Sequence[LedgerPosition]) -> bool:
        """Returns whether the state of all routes was there. One that is not is built anew from the log, as after a
        crash that lost it: what waited is read again."""
        complete, folder = True, self.pipeline.layout.checkpoints
        # A backup that was killed left links, which keep files that nobody needs. The log's locks let in one at a time.
        for left in folder.glob(f"{LINKS}*"):
            shutil.rmtree(left, ignore_errors=True)
        if not folder.exists():
            return True
        with tempfile.TemporaryDirectory(prefix=LINKS, dir=folder) as scratch:
            for position in positions:
                checkpoint = folder / position.checkpoint
                if not has_state(checkpoint):
                    continue
                linked = Path(scratch) / position.checkpoint
                link_files(checkpoint, linked)
                cut = find_cut(linked, position)
                complete = complete and cut is not None
                for path in () if cut is None else cut_files(linked, cut):
                    name = str(checkpoint.relative_to(self.pipeline.layout.root) / path.relative_to(linked))
                    self.files[name] = copy_file(path, self.folder / name, None, self._count)
                    faults.reach("backup.file_copied")
        return complete

    def _copy_ledger(self) -> _CopiedLedger:
        copy = self.folder / self.pipeline.layout.ledger.name
        with closing(sqlite3.connect(self.pipeline.layout.ledger)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
            # One file: the extra files of WAL mode are easily forgotten when the backup is moved.
            target.execute("PRAGMA journal_mode=DELETE")
            extents = dict(target.execute("SELECT route, failed_bytes FROM totals").fetchall())
            positions = list(_positions(target, self.pipeline.ledger.scope))
        copy.chmod(0o600)
        self.files[copy.name] = hash_file(copy)
        return _CopiedLedger(extents, positions)

    def _copy_partition(self, directory: Path) -> None:
        head = read_head(directory)
        if head is None:
            (self.folder / "log" / directory.name).mkdir(parents=True, exist_ok=True, mode=0o700)
            return
        for base in segment_bases(directory):
            if base > head.segment:
                break
            path = segment_path(directory, base)
            self._copy_file(path, head.position if base == head.segment else None)
            if base < head.segment and index_path(path).exists():
                self._copy_file(index_path(path))
        self._write_content(directory / HEAD_FILE, pack(head._replace(durable=head.position)))
        known = [list(each) for each in read_lineage(directory).incarnations if each.first < head.next_offset]
        if known:
            self._write_content(directory / LINEAGE_FILE, json.dumps(known, separators=(",", ":")).encode())
        for path in sorted(directory.iterdir()):
            kept = path.suffix not in (SEGMENT_SUFFIX, INDEX_SUFFIX, ".new", ".lock")
            if path.is_file() and kept and path.name not in (HEAD_FILE, LINEAGE_FILE, "lock"):
                self._copy_file(path)

    def _copy_tree(self, directory: Path) -> None:
        for path in sorted(directory.rglob("*")):
            if path.is_file() and path.suffix not in (".new", ".lock"):
                self._copy_file(path)

    def _copy_file(self, path: Path, length: int | None = None) -> None:
        name = str(path.relative_to(self.pipeline.layout.root))
        try:
            self.files[name] = copy_file(path, self.folder / name, length, self._count)
        except FileNotFoundError:
            # A small file that was replaced or removed meanwhile; segments are locked against that, and nothing that
            # the ledger counts in the failed store may be missing.
            if length:
                raise too_short_error(path, 0, length) from None
            if path.suffix == SEGMENT_SUFFIX:
                raise
            return
        faults.reach("backup.file_copied")

    def _write_content(self, path: Path, content: bytes) -> None:
        name = str(path.relative_to(self.pipeline.layout.root))
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_durably(self.folder / name, content)
        self.files[name] = hash_file(self.folder / name)

    def _count(self, size: int) -> None:
        self.done += size
        self.report_progress(self.done, max(self.done, self.total))


@contextmanager
def _lock_partition(log: Path, partition: int) -> Iterator[None]:
    """Wait for retention, compaction or repair of a partition to end, and keep them out."""
    deadline = time.monotonic() + LOCK_PATIENCE
    while True:
        with lock_for_maintenance(log / str(partition)) as ours:
            if ours:
                yield
                return
        if time.monotonic() > deadline:
            raise busy_error(log, partition)
        time.sleep(0.1)
