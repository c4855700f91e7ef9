"""One attempt to write a batch: where to, by which rules, and how far it goes once rows are refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import pyarrow as pa

from penstock.destinations.contract import Batch, TableBook
from penstock.destinations.sql.schema.alter_table import TableRules
from penstock.destinations.sql.session import Session
from penstock.errors import RefusedError


class WriteRefused(Exception):
    """Ends an attempt that loads all rows or none. A loader answers a ``RefusedError`` by searching for the bad
    rows."""


class Attempt(Enum):
    LENIENT = auto()
    """Finds the refused rows and loads the others."""
    STRICT = auto()
    """Loads all rows, or ends at the first that is refused."""
    TRIAL = auto()
    """Like ``STRICT``, and rolls everything back."""

    @property
    def keeps(self) -> bool:
        return self is not Attempt.TRIAL

    def check_refusal(self, error: RefusedError) -> None:
        """Raises ``WriteRefused`` if the engine may refuse no row."""
        if self is not Attempt.LENIENT:
            raise WriteRefused(error.what) from error

    def check_failures(self, failures: pa.RecordBatch) -> None:
        """Raises ``WriteRefused`` if rows failed and none may."""
        if self is not Attempt.LENIENT and failures.num_rows:
            raise WriteRefused(failures.column("message")[0].as_py())


@dataclass(frozen=True)
class BatchWrite:
    session: Session
    rules: TableRules
    batch: Batch
    book: TableBook
    attempt: Attempt = Attempt.LENIENT
