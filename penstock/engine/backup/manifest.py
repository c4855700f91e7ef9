"""The list of a backup's files. A backup without it was cut short; one that differs from it is damaged."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.durable import sync_directory
from penstock.errors import PenstockError
from penstock.log.format.log_files import replace_durably

MANIFEST = "manifest.json"
VERSION = 1
_BLOCK = 2**20


@dataclass(frozen=True)
class FileEntry:
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    pipeline: str
    made_at: str
    penstock: str
    scope: str
    """The ledger's id."""
    has_ledger: bool
    """Whether the ledger is in it. One that is a PostgreSQL database is not: it has backups of its own."""
    files: Mapping[str, FileEntry]
    """By path in the backup."""

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.files.values())

    def write(self, folder: Path) -> None:
        content = {"version": VERSION, **asdict(self)}
        replace_durably(folder / MANIFEST, json.dumps(content, indent=1).encode())


def read_manifest(folder: Path) -> Manifest:
    """Raises ``PenstockError`` if the folder is not a complete backup."""
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
        if content.pop("version") != VERSION:
            raise PenstockError(
                "PEN-BAK-002", f"{folder} is a backup of another release.", "Restore it with the release that made it."
            )
        files = {str(path): FileEntry(int(e["bytes"]), str(e["sha256"])) for path, e in content.pop("files").items()}
        if any(Path(path).is_absolute() or ".." in Path(path).parts for path in files):
            raise ValueError("a file lies outside of the backup")
        return Manifest(**content, files=files)
    except FileNotFoundError:
        raise PenstockError(
            "PEN-BAK-001",
            f"{folder} is not a complete backup: it has no {MANIFEST}, which is written last.",
            "Restore another one. Of a backup that was cut short, nothing can be used.",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PenstockError(
            "PEN-BAK-003", f"{folder / MANIFEST} cannot be read: {error}.", "Restore another backup."
        ) from None


def copy_file(
    source: Path, target: Path, length: int | None = None, report_bytes: Callable[[int], None] | None = None
) -> FileEntry:
    """Copy a file, or its first ``length`` bytes, durably. Raises ``PenstockError`` if it is shorter."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    left = length
    size, digest = 0, hashlib.sha256()
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with source.open("rb") as read, os.fdopen(descriptor, "wb") as written:
        while left is None or left > 0:
            block = read.read(_BLOCK if left is None else min(_BLOCK, left))
            if not block:
                break
            written.write(block)
            digest.update(block)
            size += len(block)
            left = None if left is None else left - len(block)
            if report_bytes is not None:
                report_bytes(len(block))
        written.flush()
        os.fsync(written.fileno())
    if left:
        raise too_short_error(source, size, length)
    return FileEntry(size, digest.hexdigest())


def too_short_error(source: Path, size: int, length: int | None) -> PenstockError:
    return PenstockError(
        "PEN-BAK-004",
        f"{source} has {size} bytes, and {length} were to be copied.",
        "Check the file: penstock log verify, penstock doctor",
    )


def hash_file(path: Path) -> FileEntry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return FileEntry(path.stat().st_size, digest.hexdigest())


def sync_folders(folder: Path) -> None:
    """Make the names of all files below a folder durable."""
    for directory in [path for path in folder.rglob("*") if path.is_dir()]:
        sync_directory(directory)
    sync_directory(folder)
