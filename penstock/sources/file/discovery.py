"""Which files exist, in a stable order, and which names a rotated file may have had before."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKED = (".gz", ".zst", ".zstd")
_GENERATION = re.compile(r"[.\-_]\d[\d.\-_T]*$")


class FoundFile(NamedTuple):
    """A file as it was when we looked."""

    path: Path
    id: str
    size: int
    changed: int
    """Time of its last change, in nanoseconds."""


def find_files(path: Path, pattern: str) -> list[FoundFile]:
    """A file, the files that ``path`` matches as a pattern, or those in a directory that match ``pattern``."""
    if path.is_dir():
        inside = ((match, match.relative_to(path).parts) for match in path.rglob(pattern))
        matches: Iterator[Path] = (match for match, parts in inside if not any(part.startswith(".") for part in parts))
    elif path.exists():
        matches = iter([path])
    else:
        matches = Path(path.anchor).glob(str(path.relative_to(path.anchor)))
    return [found for match in sorted(matches) if (found := stat_file(match)) is not None]


def may_be_empty(path: Path) -> bool:
    """Whether ``path`` may match no file: it is a directory or a pattern, not a single file."""
    return path.is_dir() or any(sign in str(path) for sign in "*?[")


def stat_file(path: Path) -> FoundFile | None:
    """None if there is no such file (any more)."""
    try:
        status = path.stat()
    except OSError:
        return None
    return found_as(path, status) if path.is_file() else None


def found_as(path: Path, status: os.stat_result) -> FoundFile:
    return FoundFile(path, f"{status.st_dev}:{status.st_ino}", status.st_size, status.st_mtime_ns)


def siblings(path: Path) -> list[FoundFile]:
    """The files in a file's folder, last changed last; none if the folder is gone or not readable."""
    try:
        names = os.listdir(path.parent)
    except OSError:
        return []
    found = [sibling for name in names if (sibling := stat_file(path.parent / name)) is not None]
    return sorted(found, key=lambda sibling: sibling.changed)


def may_be_copy(name: str, of: str) -> bool:
    """Whether rotation (or a writer that replaces the whole file) may put into ``name`` what was in ``of``.

    ``a.log.1`` and ``a.log-20260131`` may be copies of ``a.log``, ``a.log.2.gz`` of ``a.log.1``, ``a.log`` of itself.
    """
    if name == of or generation_base(name) == of:
        return True
    return is_packed_name(name) and not is_packed_name(of) and generation_base(name) == generation_base(of)


def generation_base(name: str) -> str:
    """The name without rotation's suffix: ``a.log`` for ``a.log.2.gz``."""
    return _GENERATION.sub("", os.path.splitext(name)[0] if is_packed_name(name) else name)


def is_packed_name(name: str) -> bool:
    return name.endswith(PACKED)
