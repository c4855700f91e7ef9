"""How the log's files are named and how small ones are replaced, so that a crash leaves the old or the new, whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from penstock.durable import sync_directory
from penstock.errors import LogError, LogFull

SEGMENT_SUFFIX = ".seg"
INDEX_SUFFIX = ".idx"


def segment_path(partition_dir: Path, base: int) -> Path:
    return partition_dir / f"{base:020d}{SEGMENT_SUFFIX}"


def index_path(segment: Path) -> Path:
    return segment.with_suffix(INDEX_SUFFIX)


def segment_bases(partition_dir: Path) -> list[int]:
    """First offsets of the partition's segments, in order; empty if there is no such directory."""
    try:
        names = [path.name for path in partition_dir.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(name[: -len(SEGMENT_SUFFIX)]) for name in names if name.endswith(SEGMENT_SUFFIX))


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def is_full(error: OSError) -> bool:
    """Whether the error means no room: on the disk, in a quota, or in the largest file allowed."""
    return error.errno in _FULL


def disk_full_error(path: Path, error: OSError) -> LogFull:
    return LogFull(
        "PEN-LOG-004",
        f"there is no room for an append to {path} ({error.strerror}); nothing of it was written.",
        "Free disk space or lower log.retention; appends go on as soon as there is room.",
    )


def size_of(path: Path) -> int:
    """The size of a file; zero if it does not exist (any more)."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def damage_error(segment: Path, position: int, offset: int | None, why: str) -> LogError:
    """``offset`` is the first that cannot be read, if known."""
    first = "" if offset is None else f" (offset {offset})"
    return LogError(
        "PEN-LOG-003",
        f"segment {segment} is damaged at byte {position}{first}: {why}.",
        "Nothing was cut or skipped. Put an undamaged copy of the file in its place and start again. If there is none: "
        "penstock log verify shows what is lost, penstock log repair goes on without it.",
    )


def replace_durably(path: Path, content: bytes | memoryview) -> None:
    """Put ``content`` at ``path``: after a crash at any moment the file is the old one or the new one."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def try_lock(path: Path) -> int | None:
    """An exclusive lock on a file, held until the descriptor is closed; None if someone else has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Wait for an exclusive lock on a file and hold it for a short while."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
