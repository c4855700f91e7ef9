"""The end of a partition as readers may see it: one small file, rewritten in place after every append.

Readers never go past it, so nothing half written is ever delivered and, with ``fsync: always``, nothing that is not on
disk. It also says up to where the segment was known to be durable: below that a bad byte is damage, above it a torn
write.

The head itself is synced when the partition is opened and closed, not with every append: after a power cut the disk may
hold an older one. That is as good, as long as the segment that it names is unchanged: what it calls durable was synced
before it was published, in every fsync mode, and opening the partition finds again what came later, in that segment and
later ones. Hence the rule: whoever removes or replaces a closed segment calls ``sync_head`` first. A segment is closed
once the head names a later one, so from then on no power cut can bring back a head that names the old one.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from penstock.errors import LogError

HEAD_FILE = "head"
_LAYOUT = struct.Struct("<4sIqqqqq")
_UNSTAMPED_LAYOUT = struct.Struct("<4sIqqqq")
_CHECKSUM = struct.Struct("<Q")
_MAGIC = b"PNSH"
_VERSION = 2
_UNSTAMPED_BYTES = _UNSTAMPED_LAYOUT.size + _CHECKSUM.size


class Head(NamedTuple):
    segment: int
    """First offset of the active segment."""
    position: int
    """Readers may read this segment up to here; every earlier one to its end."""
    next_offset: int
    durable: int
    """The segment is on disk up to here."""
    stamp: int = 0
    """The highest stamp of a published record: see ``logical_clock``. A head of format 1 has none."""


def pack(head: Head) -> bytes:
    fields = _LAYOUT.pack(_MAGIC, _VERSION, *head)
    return fields + _CHECKSUM.pack(google_crc32c.value(fields))


def unpack(content: bytes) -> Head | None:
    """The head in ``content``, or None if it is not whole."""
    version, layout = (_VERSION, _LAYOUT) if len(content) > _UNSTAMPED_BYTES else (1, _UNSTAMPED_LAYOUT)
    if len(content) != layout.size + _CHECKSUM.size:
        return None
    (found,) = _CHECKSUM.unpack_from(content, layout.size)
    if google_crc32c.value(content[: layout.size]) != found:
        return None
    magic, said, *fields = layout.unpack_from(content)
    return Head(*fields) if magic == _MAGIC and said == version else None


def read_head(partition_dir: Path) -> Head | None:
    """What the partition's writer last published; None if it never did.

    A read that meets a write may see half of each; it is repeated. A file that stays unreadable raises ``LogError``.
    """
    path = partition_dir / HEAD_FILE
    for attempt in range(50):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        head = unpack(content)
        if head is not None:
            return head
        time.sleep(0.0001 * attempt)
    raise _lost(f"{path} cannot be read.")


def sync_head(partition_dir: Path) -> None:
    """Make the partition's head durable, whichever process last wrote it; if there is one."""
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(partition_dir / HEAD_FILE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def missing_head_error(partition_dir: Path) -> LogError:
    """The error for a partition with records but no head: the head is written before the first record."""
    return _lost(f"{partition_dir / HEAD_FILE} is missing, and there are records.")


def _lost(what: str) -> LogError:
    return LogError(
        "PEN-LOG-007",
        what,
        "Start the pipeline, or open the partition for writing: that finds the end of the log again.",
    )


class HeadFile:
    """The writer's side: publishes heads by one write in place."""

    def __init__(self, partition_dir: Path) -> None:
        self._fd = os.open(partition_dir / HEAD_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def publish(self, head: Head) -> None:
        os.pwrite(self._fd, pack(head), 0)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)
