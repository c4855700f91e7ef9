"""Files in a directory: one per part of a batch, named by route, batch and first record.

A file is made under a hidden name in the directory it goes to, synced, and renamed, so what a reader sees is whole. The
names depend on the batch alone: writing a batch again replaces its files and removes those of an earlier attempt that
was cut otherwise, so no row is there twice once ``write`` has returned. What another process left of a batch is looked
for once, at the first one that is written here: later ones begin here, and what they leave is known.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from penstock import faults
from penstock.destinations.contract import (
    UNRECORDED,
    Batch,
    Capabilities,
    Destination,
    Part,
    Receipt,
    Stager,
    TableBook,
    TableReceipt,
)
from penstock.destinations.file.config import FileConfig
from penstock.destinations.file.line_files import LineStager
from penstock.durable import sync_directory
from penstock.errors import PenstockError, TransientError

TABLE = "file"
_COMPRESSED = {"none": "", "gzip": ".gz", "zstd": ".zst"}


class FileDestination(Destination[FileConfig]):
    capabilities = Capabilities()

    def __init__(self, config: FileConfig) -> None:
        super().__init__(config)
        self._tried: dict[tuple[str, str], _Tried] = {}

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        whole_records = self.config.columns == "record"
        if self.config.format == "ndjson":
            return LineStager(directory, TABLE, whole_records, self._compression)
        # Here and not above: NDJSON needs neither Parquet nor the JSON scanners.
        from penstock.destinations.file.column_files import column_stager, parquet_files
        from penstock.destinations.file.csv_files import csv_files

        files = csv_files if self.config.format == "csv" else parquet_files
        return column_stager(directory, whole_records, casts, files(self._compression))

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = UNRECORDED) -> Receipt:
        target = self.config.path
        try:
            target.mkdir(parents=True, exist_ok=True)
            names = self._names(batch, parts)
            leftovers = self._leftovers(target, batch, names)
            for name, part in names.items():
                _place(Path(part.path), target / name)
                faults.reach("destination.writing")
            for name in leftovers:
                (target / name).unlink(missing_ok=True)
                _hidden(target / name).unlink(missing_ok=True)
            sync_directory(target)
        except OSError as error:
            raise TransientError(
                "PEN-DST-011",
                f"cannot write files of route '{batch.route}' to {target}: {error}.",
                "Make room or mend its permissions; the batch is tried again.",
            ) from error
        faults.reach("destination.committed")
        return Receipt([TableReceipt(TABLE, sum(part.rows for part in parts))] if parts else [])

    def check(self) -> str:
        target = self.config.path
        try:
            target.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=target, prefix=".check-"):
                pass
            free = shutil.disk_usage(target).free
        except OSError as error:
            raise PenstockError(
                "PEN-DST-012", f"cannot write to {target}: {error}.", "Name a directory that this user may write to."
            ) from error
        return f"{target} can be written, {free / 2**30:,.1f} GiB free"

    @property
    def _compression(self) -> str:
        return self.config.compression or ("zstd" if self.config.format == "parquet" else "none")

    def _leftovers(self, target: Path, batch: Batch, names: Collection[str]) -> set[str]:
        """What earlier attempts at this batch may have left under other names than it has now."""
        last = self._tried.get((batch.scope, batch.route))
        if last is not None and batch.number > last.number:
            found = set()  # numbers grow: nobody can have tried it
        elif last is not None and batch.number == last.number:
            found = last.names
        else:
            found = _names_in(target, _prefix(batch))
        self._tried[batch.scope, batch.route] = _Tried(batch.number, found | set(names))
        return found - set(names)

    def _names(self, batch: Batch, parts: Sequence[Part]) -> dict[str, Part]:
        # Parquet is compressed inside, column by column; its name does not tell.
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
class _Tried:
    """The last batch of a route that was written here, or would have been, and all names its files were given."""

    number: int
    names: set[str]


def _prefix(batch: Batch) -> str:
    """What all files of a batch begin with. The scope is in it: two pipelines may share directory and route name. So is
    the origin: where a number comes again for other records, their files must not take the place of those there."""
    scope = sha256(batch.scope.encode()).hexdigest()[:8]
    origin = f"{sha256(batch.origin.encode()).hexdigest()[:8]}-" if batch.origin else ""
    return f"{quote(batch.route, safe='')}-{scope}-{batch.number:010d}-{origin}"


def _hidden(final: Path) -> Path:
    return final.with_name(f".{final.name}.part")


def _place(staged: Path, final: Path) -> None:
    """The staged file under its final name, on disk. The staged one stays: the write may have to be done again."""
    hidden = _hidden(final)
    hidden.unlink(missing_ok=True)
    try:
        os.link(staged, hidden)
    except OSError:  # another filesystem, or one without links
        shutil.copyfile(staged, hidden)
    with hidden.open("rb+") as file:
        os.fsync(file.fileno())
    hidden.replace(final)
    # Renaming one link of a file onto another of the same file leaves both: so it is when a batch is written again.
    hidden.unlink(missing_ok=True)


def _names_in(target: Path, prefix: str) -> set[str]:
    """The files of a batch that are in the directory, finished or not, by their final names."""
    names = {name.removeprefix(".").removesuffix(".part") for name in os.listdir(target)}
    return {name for name in names if name.startswith(prefix)}
