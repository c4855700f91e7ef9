"""Prints a batch in log order, one line per record.

Nothing remembers what was printed: a batch that is written again is printed again (at-least-once). Nothing is refused:
characters that the encoding lacks are escaped. A reader that is gone may come back.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.destinations.contract import NULL_TABLE_BOOK, Batch, Destination, Part, Receipt, Stager, TableBook
from penstock.destinations.file.line_files import LineStager
from penstock.destinations.stdout.config import StdoutConfig
from penstock.errors import TransientError

TABLE = "stdout"


class StdoutDestination(Destination[StdoutConfig]):
    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return LineStager(directory, TABLE, whole_records=self.config.format == "record")

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        try:
            for part in sorted(parts, key=lambda part: (part.partition, part.first_offset)):
                with Path(part.path).open(encoding="utf-8", errors="replace", newline="\n") as lines:
                    while text := lines.read(1 << 20):
                        sys.stdout.write(_spelled(text))
            sys.stdout.flush()
        except (OSError, ValueError) as error:  # ValueError: it was closed
            raise TransientError(
                "PEN-DST-010", f"standard output takes no more lines: {error}.", "Restart its reader; it is retried."
            ) from error
        return Receipt.of_all(TABLE, parts)


def _spelled(text: str) -> str:
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, errors="backslashreplace").decode(encoding)
