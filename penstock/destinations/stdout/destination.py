"""Prints a batch in log order, one line per record.

A terminal has no memory: a batch that is written again is printed again (at-least-once). It refuses nothing: characters
that its encoding does not have are spelled out. A reader that is gone may come back.
"""

from __future__ import annotations

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
from penstock.destinations.file.line_files import LineStager
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
                    while text := lines.read(1 << 20):
                        sys.stdout.write(_spelled(text))
            sys.stdout.flush()
        except (OSError, ValueError) as error:  # ValueError: it was closed
            raise TransientError(
                "PEN-DST-010", f"standard output takes no more lines: {error}.", "Is its reader still there?"
            ) from error
        return Receipt([TableReceipt(TABLE, sum(part.rows for part in parts))] if parts else [])


def _spelled(text: str) -> str:
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, errors="backslashreplace").decode(encoding)
