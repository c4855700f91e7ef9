"""What an engine owes so that tables can be mirrored into it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from penstock.destinations.sql.mirror.row_changes import Changes
from penstock.destinations.sql.session import Mark


class Mirror(ABC):
    """One transaction at the target. It is committed when it is left without an error. Errors are those of ``Session``;
    after a ``RefusedError`` the transaction goes on, as it was before the call."""

    whole_rows: ClassVar[bool]
    """Whether rows that come must have all columns of their table, because they take the place of those there."""

    @abstractmethod
    def apply(self, changes: Changes, before: Callable[[], Changes] | None) -> None:
        """Take rows out, then put rows in; a row that is put where one stands replaces its values. ``before`` gives all
        that was applied in this transaction so far, if anything was, for an engine that must do it over."""

    @abstractmethod
    def note(self, mark: Mark) -> None:
        """Write the mark of a batch. The last call."""
