"""What the destination asks of a database that holds the state of sources.

One bundle, or one pack of bundles, is one transaction: its rows, the version of its source and kind, and the position
of the route are written together or not at all. The version's row is the mark of exactly once: a change is made only
if the database has an older version, whoever else writes to it, so a crash can neither lose nor repeat a bundle, and no
table ever goes back in time.

Every call raises ``TransientError`` if the database cannot do it now (no connection, a lock, a full disk, somebody
else was faster in a way that makes the decision doubtful), and ``write`` raises ``RefusedError`` or
``TableRefusedError`` if it will never take these rows, or no rows in this table. After any of them nothing of the call
was done, and the store can be used again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.conflation.batch_plan import Known
from penstock.conflation.bundle import Place
from penstock.conflation.fold_rows import Said
from penstock.conflation.unmet_dependency import Parked
from penstock.conflation.version import Version
from penstock.destinations.state.config import OnInactive as OnInactive
from penstock.flatten.column import Column

SOURCE = "source"
"""The column of every state table that says whose row it is: the first of its key."""
INACTIVE_SINCE = "_inactive_since"
"""The column that marks the rows of a source that fell silent; null while it reports."""


@dataclass(frozen=True)
class StateRows:
    """The objects of one bundle or of a whole pack, at most one row for each. Made by ``state.bundle_rows``."""

    table: pa.Table
    """Without the source. Columns as ``flatten`` makes them: each value is exact, none goes through a double that would
    round it."""
    columns: tuple[Column, ...]
    """What the columns are, in the order of the table."""
    said: npt.NDArray[np.int8]
    """What each row says of its object (``Said``). Of one that is not ``PUT`` only the key counts."""
    prunes: bool
    """Whether the source's objects that no row puts or lists are gone."""

    @cached_property
    def only_puts(self) -> bool:
        return not np.any(self.said != Said.PUT)


class RestsOn(NamedTuple):
    """The kind that a change depends on, and the version that was found of it when that was decided."""

    kind: str
    version: Version | None


@dataclass(frozen=True)
class StateChange:
    """What is written in one transaction: a complete bundle, or a pack."""

    source: str
    kind: str
    table: str
    key: tuple[str, ...]
    """The columns that tell the objects of a source apart, by the names that columns have (``column_name``)."""
    version: Version
    place: Place
    """Where the newest of its bundles is: the same bundle is not another one of the same version."""
    rows: StateRows
    adds_up: bool = False
    """Whether the rows are changes, not all that there is (``Sync.adds_up``)."""
    previous: Version | None = None
    """The version of this kind that the change follows, as ``known`` said. Of what adds up it must be there still; a
    complete bundle may follow any older one."""
    rests_on: RestsOn | None = None
    """If the database has another version of that kind by now, nothing is written and ``TransientError`` is raised."""
    route: str = ""
    positions: Mapping[int, int] = field(default_factory=dict)
    """Where the route stands in each partition of the log once this is written. Only what grew is noted."""


@dataclass(frozen=True)
class RowsChanged:
    compared: int = 0
    """Rows of the bundle that were compared with the table, or put into it without."""
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    already: bool = False
    """The database has this version, or a newer one: nothing was changed."""

    @property
    def changed(self) -> int:
        return self.inserted + self.updated + self.deleted


@dataclass(frozen=True)
class KindState:
    """What the database has of one kind of a source."""

    kind: str
    version: Version
    table: str
    updated_at: datetime


@dataclass(frozen=True)
class SourceState:
    source: str
    active: bool
    updated_at: datetime
    """When the last of its bundles was written."""
    kinds: Sequence[KindState]
    """By name."""


class StateSession(ABC):
    """One connection. Used by one thread at a time."""

    @abstractmethod
    def write(self, change: StateChange) -> RowsChanged:
        """Make the change in one transaction, unless the database has this version or a newer one already.

        The table is made if it is not there, and gets the columns that it lacks. A column that cannot hold a value is
        widened to the lowest type that holds both (integer, number, text), which loses nothing; where that is not
        possible the rows are refused. Only rows that differ are written. A column that bundles have filled before, and
        that these rows lack, becomes null in them; columns that only somebody else fills are left alone.
        """

    @abstractmethod
    def write_together(self, changes: Sequence[StateChange], patience: float) -> Sequence[RowsChanged]:
        """The same for changes of one kind of different sources, whose rows have the same columns: all of them in one
        transaction, or none. Raises also ``TransientError`` if a statement takes longer than ``patience``, in seconds,
        because of somebody else."""


class StateStore(ABC):
    """Open while a batch is written, or a command runs. May be used by several threads."""

    @abstractmethod
    def known(self, sources: Collection[str]) -> Known:
        """What was written of these sources, and what was parked. Of a kind whose rows were deleted because the source
        fell silent, a version just before the one that was written: the same one is wanted again."""

    @abstractmethod
    def session(self) -> AbstractContextManager[StateSession]:
        """Lend a connection. There are as many as the store was opened for; who comes when all are lent waits. A
        connection is made when it is first needed, and one that broke is made again; raises ``TransientError`` if that
        leads to another server than before, which may lack what was written through this store."""

    @abstractmethod
    def note_parked(self, source: str, kind: str, parked: Parked) -> None:
        """Remember a bundle that was given up, until a newer one of its kind is written."""

    @abstractmethod
    def sources(self) -> Sequence[SourceState]:
        """All sources, by name."""

    @abstractmethod
    def forget(self, source: str) -> int:
        """Delete all that there is of a source, in all tables, in one transaction. Returns how many rows went. Raises
        ``TableRefusedError`` if a table keeps rows: then nothing was deleted."""

    @abstractmethod
    def note_seen(self, sources: Collection[str]) -> None:
        """Note that something came from these sources, also if nobody needed it: they are not silent. One that was
        inactive is active again, and its rows are not marked any more."""

    @abstractmethod
    def clock(self) -> float:
        """The database's clock, by which ``set_inactive`` measures, in seconds since 1970."""

    @abstractmethod
    def set_inactive(self, silent_for: timedelta, rule: OnInactive) -> Sequence[str]:
        """Mark the sources of which nothing was written or seen for so long, by the database's clock, and handle their
        rows. Returns those that became inactive now. One that is being written meanwhile is left alone; so is
        one whose rows a table keeps, and the log says why."""

    @abstractmethod
    def positions(self, route: str) -> Mapping[int, int]:
        """Where a route stands in each partition of the log, as far as it was noted."""

    @abstractmethod
    def note_positions(self, route: str, positions: Mapping[int, int]) -> None:
        """Note where a route stands, without rows. Only what grew is noted."""
