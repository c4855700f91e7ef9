"""Files in a directory: one per part of a batch, named by route, batch and first record.

A file is written under a hidden name in its directory, synced, and renamed, so readers only see complete files. The
names depend on the batch alone: writing a batch again replaces its files and removes those of an earlier attempt that
was cut differently, so no row is there twice once ``write`` has returned. Files that another process left are looked
for only at the first batch that is written here: later ones begin here, so what they leave is known.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from penstock import faults
from penstock.destinations.contract import NULL_TABLE_BOOK, Batch, Destination, Part, Receipt, Stager, TableBook
from penstock.destinations.file.config import FileConfig
from penstock.destinations.file.line_files import LineStager
from penstock.durable import check_folder, sync_directory
from penstock.errors import PenstockError, TransientError

TABLE = "file"
_COMPRESSED = {"none": "", "gzip": ".gz", "zstd": ".zst"}


class FileDestination(Destination[FileConfig]):
    def __init__(self, config: FileConfig) -> None:
        super().__init__(config)
        self._last_attempts: dict[tuple[str, str], _LastAttempt] = {}

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        whole_records = self.config.columns == "record"
        if self.config.format == "ndjson":
            return LineStager(directory, TABLE, whole_records, self._compression)
        # Here and not above: NDJSON needs neither Parquet nor the JSON scanners.
        from penstock.destinations.file.column_files import column_stager, parquet_files
        from penstock.destinations.file.csv_files import csv_files

        files = csv_files if self.config.format == "csv" else parquet_files
        return column_stager(directory, whole_records, casts, files(self._compression))

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        target = self.config.path
        try:
            target.mkdir(parents=True, exist_ok=True)
            names = self._names(batch, parts)
            leftovers = self._leftovers(target, batch, names)
            for name, part in names.items():
                _publish_file(Path(part.path), target / name)
                faults.reach("destination.writing")
            for name in leftovers:
                (target / name).unlink(missing_ok=True)
                _hidden(target / name).unlink(missing_ok=True)
            sync_directory(target)
        except OSError as error:
            raise TransientError(
                "PEN-DST-011",
                f"cannot write files of route '{batch.route}' to {target}: {error}.",
                "Make room or fix its permissions; the batch is tried again.",
            ) from error
        faults.reach("destination.committed")
        return Receipt.of_all(TABLE, parts)

    def check(self) -> str:
        target = self.config.path
        try:
            return check_folder(target)
        except OSError as error:
            raise PenstockError(
                "PEN-DST-012", f"cannot write to {target}: {error}.", "Name a folder that this user may write to."
            ) from error

    @property
    def _compression(self) -> str:
        return self.config.compression or ("zstd" if self.config.format == "parquet" else "none")

    def _leftovers(self, target: Path, batch: Batch, names: Collection[str]) -> set[str]:
        """Files that earlier attempts at this batch may have left under names that it no longer has."""
        last = self._last_attempts.get((batch.scope, batch.route))
        if last is not None and batch.number > last.number:
            found = set()  # numbers grow: nobody has tried it
        elif last is not None and batch.number == last.number:
            found = last.names
        else:
            found = _names_in(target, _prefix(batch))
        self._last_attempts[batch.scope, batch.route] = _LastAttempt(batch.number, found | set(names))
        return found - set(names)

    def _names(self, batch: Batch, parts: Sequence[Part]) -> dict[str, Part]:
        # Parquet compresses its columns; the name does not show that.
        form = self.config.format
        ending = f".{form}" if form == "parquet" else f".{form}{_COMPRESSED[self._compression]}"
        names: dict[str, Part] = {}
        for part in sorted(parts, key=lambda part: (part.partition, part.first_offset)):
            stem = f"{_prefix(batch)}{part.partition}-{part.first_offset}"
            name, copies = stem + ending, 1
            while name in names:  # a step that splits records can start two parts at the same one
                copies += 1
                name = f"{stem}-{copies}{ending}"
            names[name] = part
        return names


@dataclass(frozen=True)
class _LastAttempt:
    """The last batch of a route that was written here, or attempted, and all names that its files got."""

    number: int
    names: set[str]


def _prefix(batch: Batch) -> str:
    """The prefix of all files of a batch. It has the scope, because two pipelines may share a directory and a route
    name, and the origin, because files of other records with the same number must not replace these."""
    scope = sha256(batch.scope.encode()).hexdigest()[:8]
    origin = f"{sha256(batch.origin.encode()).hexdigest()[:8]}-" if batch.origin else ""
    return f"{quote(batch.route, safe='')}-{scope}-{batch.number:010d}-{origin}"


def _hidden(final: Path) -> Path:
    return final.with_name(f".{final.name}.part")


def _publish_file(staged: Path, final: Path) -> None:
    """Put the staged file under its final name, durably. The staged one stays: the write may have to be repeated."""
    hidden = _hidden(final)
    hidden.unlink(missing_ok=True)
    try:
        os.link(staged, hidden)
    except OSError:  # another filesystem, or one without links
        shutil.copyfile(staged, hidden)
    with hidden.open("rb+") as file:
        os.fsync(file.fileno())
    hidden.replace(final)
    # Renaming a link onto another link of the same file leaves both: that happens if a batch is written again.
    hidden.unlink(missing_ok=True)


def _names_in(target: Path, prefix: str) -> set[str]:
    """The files of a batch that are in the directory, finished or not, by their final names."""
    names = {name.removeprefix(".").removesuffix(".part") for name in os.listdir(target)}
    return {name for name in names if name.startswith(prefix)}
