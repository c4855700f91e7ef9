"""An archive in a folder: one gzip file per day, token and batch, which appears whole or not at all.

A file is written under a hidden name, synced, and then given its final name, so readers only see complete files. Its
name follows from its records, and its header names its batch: writing a batch again replaces the batch's own files, and
never a file of another batch. If two batches would use the same name, the later one is named a millisecond later.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock import faults
from penstock.destinations.archive.config import ArchiveConfig
from penstock.destinations.archive.file_names import Owner, day_folder, file_name, is_named_between, stem
from penstock.destinations.archive.stager import ArchiveStager, Contents, Labels
from penstock.destinations.contract import (
    NULL_TABLE_BOOK,
    Batch,
    Destination,
    Part,
    Receipt,
    Stager,
    TableBook,
    TableReceipt,
)
from penstock.durable import check_folder, make_directory, sync_directory
from penstock.errors import PenstockError, TransientError

NAMES_TO_TRY = 10_000
"""Milliseconds by which the time in a file's name may be later than its first record."""


class ArchiveDestination(Destination[ArchiveConfig]):
    """The tables of its receipts are ``tok=<token id>`` and ``ns=<namespace>``, and of a route's own archive
    ``dst=<route>`` and ``failed.dst=<route>``."""

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return ArchiveStager(directory, labels=Labels(self.config.dst, self.config.names == "streaming-archive"))

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        target = self.config.path
        rows: dict[str, int] = {}
        try:
            make_directory(target)
            files = _by_file(parts)
            for (label, day), own in files.items():
                folder = target / day_folder(day)
                make_directory(folder)
                _publish_file(folder, Owner.of(batch, label), own)
                rows[label] = rows.get(label, 0) + sum(part.rows for part in own)
                faults.reach("destination.writing")
            for day in {day for _, day in files}:
                sync_directory(target / day_folder(day))
        except OSError as error:
            raise TransientError(
                "PEN-DST-060",
                f"cannot write files of route '{batch.route}' to {target}: {error}.",
                "Make room or fix its permissions; the batch is tried again.",
            ) from error
        faults.reach("destination.committed")
        return Receipt([TableReceipt(label, count) for label, count in rows.items()])

    def check(self) -> str:
        target = self.config.path
        try:
            return check_folder(target)
        except OSError as error:
            raise PenstockError(
                "PEN-DST-061", f"cannot write to {target}: {error}.", "Name a folder that this user may write to."
            ) from error


def _by_file(parts: Sequence[Part]) -> dict[tuple[str, int], list[Part]]:
    """The parts of each label and day, partition by partition: they are compressed already, and to put their lines into
    one order the driver would have to do all over again what the tasks have done side by side."""
    files: dict[tuple[str, int], list[Part]] = {}
    for part in sorted(parts, key=lambda part: (part.partition, part.first_offset)):
        files.setdefault((part.table, Contents.of(part).day), []).append(part)
    return files


def _publish_file(folder: Path, owner: Owner, parts: Sequence[Part]) -> None:
    """Write the parts as one file under a free name. The staged files stay: the write may have to be repeated."""
    beginning = stem(owner.label)
    first = min(Contents.of(part).first for part in parts) // 1000
    hidden = folder / f".{beginning}.{owner.digest}.part"
    # It may be a second link to a visible file, which must not be overwritten.
    hidden.unlink(missing_ok=True)
    with hidden.open("xb") as file:
        file.write(owner.mark)
        for part in parts:
            with Path(part.path).open("rb") as staged:
                shutil.copyfileobj(staged, file, 1 << 20)
        file.flush()
        os.fsync(file.fileno())
    earlier = _find_earlier_file(folder, owner, beginning, first)
    if earlier is not None:
        hidden.replace(earlier)
        return
    for milliseconds in range(first, first + NAMES_TO_TRY):
        if _claim_name(hidden, folder / file_name(beginning, milliseconds)):
            return
    raise OSError(f"all names from {file_name(beginning, first)} on are taken")


def _find_earlier_file(folder: Path, owner: Owner, beginning: str, first: int) -> Path | None:
    """The file with the same lines that an earlier attempt at this batch left."""
    last = first + NAMES_TO_TRY - 1
    for name in sorted(os.listdir(folder)):
        if is_named_between(name, beginning, first, last) and owner.owns(folder / name):
            return folder / name
    return None


def _claim_name(hidden: Path, final: Path) -> bool:
    """Give the file its name, unless another file has it: a rename would replace that one silently."""
    try:
        os.link(hidden, final)
    except FileExistsError:
        return False
    except OSError:  # a filesystem without links
        if final.exists():
            return False
        hidden.replace(final)
        return True
    hidden.unlink()
    return True
