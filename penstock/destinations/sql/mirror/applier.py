"""What an engine must implement so that tables can be mirrored into it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from penstock.destinations.sql.marks import Mark
from penstock.destinations.sql.mirror.row_changes import Changes
from penstock.errors import RefusedError


class RowsNotFound(RefusedError):
    """The table, which has no key, lacks rows that are to go. ``lacking``: how many, by their ``NUMBER``."""

    def __init__(self, lacking: Mapping[int, int]) -> None:
        super().__init__(
            "PEN-DST-117",
            "the table has no row that is equal, in all columns, to the one that was changed or deleted.",
            "Make the table equal to its source again, or empty it and let the source copy it.",
        )
        self.lacking = lacking


class MirrorTransaction(ABC):
    """One transaction at the target, rolled back if the context ends with an error. Errors are those of ``Session``;
    after a ``RefusedError`` the transaction goes on, as it was before the call or at its start (``starts_over``)."""

    whole_rows: ClassVar[bool]
    """Whether incoming rows must have all columns of their table, because they replace whole rows."""

    starts_over: ClassVar[bool]
    """Whether a refusal undoes all that was applied so far, so that it must be applied again."""

    @abstractmethod
    def apply(self, changes: Changes) -> None:
        """Delete rows, then upsert rows. Raises ``RowsNotFound`` if rows of a table without a key are not there."""

    @abstractmethod
    def write_mark(self, mark: Mark) -> None:
        """Write the mark of a batch. This is the last call."""
