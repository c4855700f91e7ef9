"""The local log: a directory of partitions, each written by one process and read by any.

    <directory>/partitions.json      which source and worker owns which partition
    <directory>/<partition>/         segments, their indexes, the head, the lineage, the writer's lock
    <directory>/holds/               what each consumer still needs

Opening it for reading takes no lock and creates nothing.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from penstock.durable import make_directory
from penstock.errors import LogError
from penstock.log.config import LogConfig
from penstock.log.fetch import Fetch, Pointers
from penstock.log.format.log_files import disk_full_error, is_full, lock_file, replace_durably
from penstock.log.holds import Holds
from penstock.log.lineage import Lineage, read_lineage
from penstock.log.maintenance.maintenance_lock import lock_for_maintenance
from penstock.log.maintenance.retention import ClosedSegment, closed_segment, removable, remove_segment
from penstock.log.reader import BATCH_BYTES, BATCH_RECORDS, Bounds, PartitionReader
from penstock.log.writer import PartitionWriter

_NO_LIMIT = 2**62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class PartitionOwner:
    """Whose records a partition holds: a source by its name in the config, and which of its workers."""

    source: str
    worker: int
    identity: str = field(default="", compare=False)
    """Made up when the partition was: another log in the same folder has other ones."""


@dataclass(frozen=True)
class PartitionUsage:
    """What a partition keeps on disk."""

    owner: PartitionOwner
    bytes: int
    segments: int
    records: int


class LocalLog:
    """Safe to use from several threads."""

    def __init__(self, directory: Path, config: LogConfig | None = None) -> None:
        self.directory = Path(directory)
        self.config = config or LogConfig()
        self.holds = Holds(self.directory / "holds")
        self._readers: dict[int, PartitionReader] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[LocalLog], tuple[Path, LogConfig]]:
        """Travels to another process as where it is and how it is set; files are opened there."""
        return LocalLog, (self.directory, self.config)

    def partitions(self, sources: Collection[str] | None = None) -> dict[int, PartitionOwner]:
        """Every partition, or those of some sources, and whose it is."""
        owners = self._read_owners()
        return {p: owner for p, owner in sorted(owners.items()) if sources is None or owner.source in sources}

    def owner(self, partition: int) -> PartitionOwner:
        """Whose partition it is. Raises ``LogError`` if there is none of that number."""
        owners = self._read_owners()
        if partition not in owners:
            raise LogError(
                "PEN-LOG-005",
                f"the log in {self.directory} has no partition {partition}.",
                f"It has: {', '.join(map(str, sorted(owners))) or 'none yet'}.",
            )
        return owners[partition]

    def partition_dir(self, partition: int) -> Path:
        return self.directory / str(partition)

    def writer(self, source: str, worker: int = 0) -> PartitionWriter:
        """The writer of the partition that belongs to a worker of a source, which gets one on first use.

        Raises ``LogError`` if another process, or another writer in this one, has it, and ``LogFull`` if the disk has
        no room for a first segment.
        """
        try:
            partition = self._allocate(PartitionOwner(source, worker))
            directory = self.partition_dir(partition)
            neighbours = [self.partition_dir(other) for other in self.partitions() if other != partition]
            return PartitionWriter(directory, partition, self.config, self.holds.highest(partition), neighbours)
        except OSError as error:
            if is_full(error):
                raise disk_full_error(self.directory, error) from None
            raise LogError(
                "PEN-LOG-012",
                f"the log in {self.directory} cannot be opened for writing: {error.strerror}.",
                "Check that this user may write to the folder.",
            ) from error

    def bounds(self, partition: int) -> Bounds:
        """From the oldest offset that may still be there up to the one that the next record gets."""
        return self.reader(partition).bounds()

    def first_offset(self, partition: int) -> int:
        """The offset of the first record that is there; compaction may have removed those where the log begins."""
        first = self.reader(partition).stored_span().first
        return self.bounds(partition).oldest if first is None else first

    def lineage(self, partition: int) -> Lineage:
        """Which writers gave the partition's offsets."""
        return read_lineage(self.partition_dir(partition))

    def read(
        self,
        partition: int,
        start: int,
        end: int | None = None,
        max_batch_bytes: int = BATCH_BYTES,
        max_batch_records: int = BATCH_RECORDS,
    ) -> Iterator[pa.RecordBatch]:
        """Records (``RECORD_SCHEMA``) with ``start <= offset < end``, in order.

        Small frames are merged into batches up to these sizes; a frame that is larger is one batch. An offset that is
        no longer there yields the next higher one.
        """
        return self.reader(partition).read(start, end, max_batch_records, max_batch_bytes)

    def read_times(
        self, partition: int, since: datetime | None = None, until: datetime | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Records from the first one not before ``since`` on, up to the first one not before ``until``.

        That is a range of the log, in order. Where records came out of order, it may hold some of another time.
        """
        start = self.bounds(partition).oldest if since is None else self.offset_at(partition, since)
        end = self.bounds(partition).end if until is None else self.offset_at(partition, until)
        return self.read(partition, start, max(start, end))

    def offset_at(self, partition: int, time: datetime) -> int:
        """The first offset whose record's timestamp is not before ``time`` (UTC if it names no zone)."""
        return self.reader(partition).offset_at(_micros(time))

    def advance(self, partition: int, start: int, max_records: int | None = None, max_bytes: int | None = None) -> int:
        """The end of a batch from ``start`` on with at most so many records and about so many bytes of them in memory.

        If there is any record from ``start`` on, at least one is before the end.
        """
        records, raw_bytes = (_NO_LIMIT if limit is None else limit for limit in (max_records, max_bytes))
        return self.reader(partition).advance(start, records, raw_bytes)

    def fetch(self, pointers: Pointers) -> Fetch:
        """The records at these pointers, in batches; see there."""
        owned = self.partitions()
        return Fetch(pointers, lambda partition: self.reader(partition) if partition in owned else None)

    def apply_retention(self, floors: Mapping[int, int], now: datetime) -> list[ClosedSegment]:
        """Remove closed segments that are past the configured limits and completely below their partition's floor;
        returns those that were removed.

        ``floors`` has the lowest hold of all readers of a partition. A partition without one loses nothing.
        """
        closed: dict[int, list[ClosedSegment]] = {}
        total = 0
        with ExitStack() as locks:
            for partition in self.partitions():
                ours = locks.enter_context(lock_for_maintenance(self.partition_dir(partition)))
                closed[partition] = []
                for segment, _ in self.reader(partition).chain.segments():
                    total += segment.size
                    # What is being compacted has its turn next time.
                    if ours and segment.is_closed:
                        closed[partition].append(closed_segment(partition, segment))
            chosen = list(removable(closed, floors, self.config.retention, total, _micros(now)))
            for going in chosen:
                remove_segment(going)
            return chosen

    def usage(self) -> dict[int, PartitionUsage]:
        """Bytes, segments and records of every partition."""
        found: dict[int, PartitionUsage] = {}
        for partition, owner in self.partitions().items():
            sizes = [(s.size, s.end.records) for s, _ in self.reader(partition).chain.segments()]
            size, records = (sum(column) for column in zip(*sizes, strict=True)) if sizes else (0, 0)
            found[partition] = PartitionUsage(owner, bytes=size, segments=len(sizes), records=records)
        return found

    def reader(self, partition: int) -> PartitionReader:
        """What there is to ask of one partition."""
        with self._lock:
            if partition not in self._readers:
                self.owner(partition)
                self._readers[partition] = PartitionReader(self.partition_dir(partition), partition)
            return self._readers[partition]

    def _allocate(self, owner: PartitionOwner) -> int:
        make_directory(self.directory)
        with lock_file(self.directory / "partitions.lock"):
            owners = self._read_owners()
            for partition, known in owners.items():
                if known == owner:
                    return partition
            partition = max(owners, default=-1) + 1
            make_directory(self.partition_dir(partition))
            owners[partition] = replace(owner, identity=uuid.uuid4().hex)
            content = {str(p): asdict(o) for p, o in sorted(owners.items())}
            replace_durably(self._owners_path, json.dumps(content, indent=1).encode())
            return partition

    def _read_owners(self) -> dict[int, PartitionOwner]:
        try:
            content = json.loads(self._owners_path.read_bytes())
            return {
                int(p): PartitionOwner(str(o["source"]), int(o["worker"]), str(o.get("identity", "")))
                for p, o in content.items()
            }
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LogError(
                "PEN-LOG-007",
                f"{self._owners_path} cannot be read: {error}.",
                "Restore it: it says which source each numbered folder beside it belongs to.",
            ) from None

    @property
    def _owners_path(self) -> Path:
        return self.directory / "partitions.json"


def _micros(time: datetime) -> int:
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)
