"""An archive in a folder: one gzip file per day, token and batch, that appears whole or not at all.

A file is made under a hidden name, synced, and then given its name, so what a reader sees is whole. Its name follows
from its own records, and its header says which batch it belongs to: writing a batch again replaces the batch's own
files, and never one of another batch, whose name would have been the same; then the later one is called a millisecond
later.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock import faults
from penstock.destinations.archive.config import ArchiveConfig
from penstock.destinations.archive.file_names import Owner, between, day_folder, file_name, stem
from penstock.destinations.archive.stager import ArchiveStager, Contents, Labels
from penstock.destinations.contract import (
    UNRECORDED,
    Batch,
    Destination,
    Part,
    Receipt,
    Stager,
    TableBook,
    TableReceipt,
)
from penstock.durable import make_directory, sync_directory
from penstock.errors import PenstockError, TransientError

NAMES_TO_TRY = 10_000
"""Milliseconds by which a file may be called later than its first record was."""


class ArchiveDestination(Destination[ArchiveConfig]):
    """The tables of its receipts are ``tok=<token id>`` and ``ns=<namespace>``, and of a route's own archive
    ``dst=<route>`` and ``failed.dst=<route>``."""

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return ArchiveStager(directory, labels=Labels(self.config.dst, self.config.names == "streaming-archive"))

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = UNRECORDED) -> Receipt:
        target = self.config.path
        rows: dict[str, int] = {}
        try:
            make_directory(target)
            files = _by_file(parts)
            for (label, day), own in files.items():
                folder = target / day_folder(day)
                make_directory(folder)
                _place(folder, Owner.of(batch, label), own)
                rows[label] = rows.get(label, 0) + sum(part.rows for part in own)
                faults.reach("destination.writing")
            for day in {day for _, day in files}:
                sync_directory(target / day_folder(day))
        except OSError as error:
            raise TransientError(
                "PEN-DST-060",
                f"cannot write files of route '{batch.route}' to {target}: {error}.",
                "Make room or mend its permissions; the batch is tried again.",
            ) from error
        faults.reach("destination.committed")
        return Receipt([TableReceipt(label, count) for label, count in rows.items()])

    def check(self) -> str:
        target = self.config.path
        try:
            target.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=target, prefix=".check-"):
                pass
            free = shutil.disk_usage(target).free
        except OSError as error:
            raise PenstockError(
                "PEN-DST-061", f"cannot write to {target}: {error}.", "Name a folder that this user may write to."
            ) from error
        return f"{target} can be written, {free / 2**30:,.1f} GiB free"


def _by_file(parts: Sequence[Part]) -> dict[tuple[str, int], list[Part]]:
    """The parts of each label and day, in the order of the log."""
    files: dict[tuple[str, int], list[Part]] = {}
    for part in sorted(parts, key=lambda part: (part.partition, part.first_offset)):
        files.setdefault((part.table, Contents.of(part).day), []).append(part)
    return files


def _place(folder: Path, owner: Owner, parts: Sequence[Part]) -> None:
    """The parts as one file under a name of its own. The staged ones stay: the write may have to be done again."""
    beginning = stem(owner.label)
    first = min(Contents.of(part).first for part in parts) // 1000
    hidden = folder / f".{beginning}.{owner.digest}.part"
    # It may be a second name of a file that is visible: such a one must not be written into.
    hidden.unlink(missing_ok=True)
    with hidden.open("xb") as file:
        file.write(owner.mark)
        for part in parts:
            with Path(part.path).open("rb") as staged:
                shutil.copyfileobj(staged, file, 1 << 20)
        file.flush()
        os.fsync(file.fileno())
    earlier = _placed_before(folder, owner, beginning, first)
    if earlier is not None:
        hidden.replace(earlier)
        return
    for milliseconds in range(first, first + NAMES_TO_TRY):
        if _named(hidden, folder / file_name(beginning, milliseconds)):
            return
    raise OSError(f"all names from {file_name(beginning, first)} on are taken")


def _placed_before(folder: Path, owner: Owner, beginning: str, first: int) -> Path | None:
    """The file of the same lines that an earlier attempt at this batch has left."""
    last = first + NAMES_TO_TRY - 1
    for name in sorted(os.listdir(folder)):
        if between(name, beginning, first, last) and owner.has(folder / name):
            return folder / name
    return None


def _named(hidden: Path, final: Path) -> bool:
    """Give the file its name unless another has it, which a rename would replace without a word."""
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
