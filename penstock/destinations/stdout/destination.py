"""Prints a batch in log order, one line per record.

A terminal has no memory: a batch that is written again is printed again (at-least-once).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

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
from penstock.destinations.file.lines import LineStager
from penstock.destinations.stdout.config import StdoutConfig
from penstock.errors import TransientError

TABLE = "stdout"


class StdoutDestination(Destination[StdoutConfig]):
    capabilities = Capabilities()

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return LineStager(directory, TABLE, whole_records=self.config.format == "record")

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = UNRECORDED) -> Receipt:
        try:
            for part in sorted(parts, key=lambda part: (part.partition, part.first_offset)):
                with Path(part.path).open(encoding="utf-8", errors="replace", newline="\n") as lines:
                    shutil.copyfileobj(lines, sys.stdout)
            sys.stdout.flush()
        except OSError as error:
            raise TransientError(
                "PEN-DST-010", f"standard output takes no more lines: {error}.", "Is its reader still there?"
            ) from error
        return Receipt([TableReceipt(TABLE, sum(part.rows for part in parts))] if parts else [])
