"""A partition written to a file in Transporter's layout. The file is whole or not there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.durable import sync_directory
from penstock.errors import LogError
from penstock.log.exchange.encode import encode
from penstock.log.local_log import LocalLog


@dataclass(frozen=True)
class Exported:
    """What went into a file, and what of the records had no room there."""

    partition: int
    path: Path
    entries: int
    bytes: int
    keys_left_out: int
    headers_left_out: int


def export_transporter(log: LocalLog, partition: int, path: Path, start: int = 0, end: int | None = None) -> Exported:
    """Write the records with ``start <= offset < end`` to a file that is not there yet."""
    log.owner(partition)
    if path.exists():
        raise LogError("PEN-LOG-015", f"{path} is there already.", "Name another file, or remove it first.")
    if not path.absolute().parent.is_dir():
        raise LogError("PEN-LOG-018", f"there is no folder {path.absolute().parent}.", "Make it, or name another file.")
    entries = size = keys = headers = 0
    unfinished = path.with_name(f"{path.name}.part")
    try:
        with unfinished.open("wb") as file:
            for batch in log.read(partition, start, end):
                content = encode(batch)
                file.write(content)
                entries, size = entries + batch.num_rows, size + content.size
                keys += batch.num_rows - batch.column("key").null_count
                headers += int(np.count_nonzero(np.diff(batch.column("headers").offsets.to_numpy())))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_directory(path.absolute().parent)
    return Exported(partition, path, entries, size, keys, headers)
