"""What a destination is, and what it owes.

Writing has two halves. **Stage** runs in the Spark tasks, next to the log reader: it turns records into files that are
ready to load and returns a ``Part`` per file. **Write** runs once per batch in the driver with all parts: it makes them
visible at the target. So records are parsed once, in parallel, and what travels through Spark is a few parts.

The engine may call ``write`` again for a batch that was written (it was killed before it could note so). A destination
with ``transactions`` must then change nothing; any other must do no worse than write the same rows again under the same
delivery ids. The id of a row is its batch (scope, route, number) and its record's place in the log (partition, offset),
with a running number where a record became several rows.

A destination says which of two things went wrong, and the engine does what follows from it:

- ``TransientError``: not now. No connection, a timeout, a lock, a full disk, a right that is missing, 429, 5xx. The
  engine waits, longer each time, and tries the same batch again.
- ``RefusedError``: never, as it is. A broken constraint, a value that is bad or too long, any other 4xx. Nothing of the
  batch may be written then, now or by an earlier attempt: the engine cuts the batch in two and tries the halves, each
  as a batch of its own, down to the single records that are refused. A destination that can do better finds the rows
  itself and names them in its receipt; one that writes table by table must, once a table has its rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.config.component import DestinationConfig
from penstock.errors import TransientError
from penstock.outcome import Outcome

__all__ = [
    "UNRECORDED",
    "AnyDestination",
    "Batch",
    "Capabilities",
    "Destination",
    "DestinationConfig",
    "Loaded",
    "Order",
    "Part",
    "Receipt",
    "Stager",
    "TableBook",
    "TableReceipt",
    "Unrecorded",
]


@dataclass(frozen=True)
class Capabilities:
    """What the target can do. The engine asks these, never the destination's name."""

    transactions: bool = False
    """A batch and its mark are written together or not at all: delivered exactly once."""
    queryable: bool = False
    """A person can ask it for rows (``penstock demo`` and ``doctor`` then do)."""
    max_name: int | None = None
    """Longest column name, in characters."""


@dataclass(frozen=True)
class Part:
    """One staged file: rows of one table from one stretch of one log partition, in log order."""

    table: str
    path: str
    rows: int
    partition: int
    first_offset: int
    header: str = ""
    """What ``write`` needs to know of the file (columns and types, say); its form is the destination's own."""


class Order(Protocol):
    """The order of a batch's records over all log partitions: what was acknowledged before something else was sent
    comes before it."""

    def ranks(self, partitions: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """A number for each of the records at these places: the later in the order, the higher."""


@dataclass(frozen=True)
class Batch:
    """What is delivered: the ``number`` grows by one per batch of a route and is the same at every attempt."""

    scope: str
    """The ledger's own id: two pipelines that share a target never take each other's batches for their own."""
    route: str
    number: int
    ranges: Mapping[int, tuple[int, int]]
    """Per log partition the offsets ``[start, end)``."""
    origin: str = ""
    """Which records these are, as text: the log's identity, the ranges and who wrote them. Where a number comes a
    second time with another origin (an older ledger was put back), it is another batch. Empty if it is not known."""
    waiting: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Tables of the route that are without their part of earlier batches, each with the number of the first of those:
    they may still come. A destination that remembers batches remembers them from there on, and this with them."""
    waiting_as: Sequence[str] = field(default=(), compare=False)
    """Under which other names of the route, from before it was renamed, they are to get some of that."""
    order: Order | None = field(default=None, compare=False, repr=False)
    """In which order its records count where several speak of one row; ``None``: by (partition, offset)."""


@dataclass(frozen=True)
class TableReceipt:
    """What happened to one table (or file, or topic) of the target. Its rows and failures are those of its parts."""

    table: str
    rows: int
    """Rows that were taken, now or by an earlier attempt."""
    failures: pa.RecordBatch | None = None
    """Rows that the target refused (``FAILURE_SCHEMA``); all others were written."""
    repeated: bool = False
    """The target had this batch of the table already; nothing was changed."""
    resumed: bool = False
    """The target had some of it already, by an earlier attempt, and the rest was written now."""
    away: TransientError | None = None
    """Why nothing was written to this table. It is tried again, without the tables that were written; if it stays away,
    its part waits, and later batches go on without it."""
    merged: int = 0
    """Of ``rows``, how many were folded into another one of their key before they were written."""
    meant_for: Sequence[str] = ()
    """The tables that its rows were staged for, if not for this one."""

    @property
    def staged_as(self) -> Sequence[str]:
        """The tables whose staged rows this is about."""
        return self.meant_for or (self.table,)


@dataclass(frozen=True)
class Receipt:
    """What ``write`` did, table by table."""

    tables: Sequence[TableReceipt] = ()

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def failures(self) -> Sequence[pa.RecordBatch]:
        return [table.failures for table in self.tables if table.failures is not None and table.failures.num_rows]

    @property
    def repeated(self) -> bool:
        return bool(self.tables) and all(table.repeated for table in self.tables)


@dataclass(frozen=True)
class Loaded:
    """What a target remembers of one table of a batch: whose it was, what it was made of, which rows it refused."""

    batch: Batch
    """Its ranges are in its origin only, which is empty for what an older release wrote."""
    table: str
    rows: int
    failures: pa.RecordBatch | None = None
    meant_for: Sequence[str] = ()
    """The tables that its rows were staged for, if not for this one."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """The ``waiting`` of its batch."""
    waiting_as: Sequence[str] = ()
    upto: tuple[int, int] | None = None
    """Where the table was left in the middle of its part: partition and offset of the last record, in the order of the
    log, that it has."""


class TableBook(Protocol):
    """What the engine remembers of a route's tables, for people to ask and for engines to agree."""

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Hold a lock over all processes that share the ledger, for targets that have none of their own."""

    def changed(self, table: str, statement: str) -> None:
        """Note a schema change that was just made."""

    def filled(self, table: str, columns: Mapping[str, Sequence[str]]) -> None:
        """Note which JSON paths fill which columns."""

    def filled_tables(self) -> Collection[str]:
        """The tables of which that was ever noted."""

    def overflowing(self, batch: Batch) -> Collection[str]:
        """The tables whose rows of this batch go to the table for what is beyond the limit. Once they do, they do at
        every attempt: they may be there already."""

    def to_overflow(self, batch: Batch, tables: Collection[str], limit: int, into: str) -> None:
        """Note that they do."""


class Unrecorded:
    """The book of somebody who writes alone and will not ask."""

    def lock(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def changed(self, table: str, statement: str) -> None: ...

    def filled(self, table: str, columns: Mapping[str, Sequence[str]]) -> None: ...

    def filled_tables(self) -> Collection[str]:
        return ()

    def overflowing(self, batch: Batch) -> Collection[str]:
        return ()

    def to_overflow(self, batch: Batch, tables: Collection[str], limit: int, into: str) -> None: ...


UNRECORDED = Unrecorded()


class Stager(ABC):
    """Turns records into staged files inside one Spark task. Used by one thread, for one stretch of one partition."""

    @abstractmethod
    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        """Take the rows of a batch. Like a step: what cannot be staged is in ``skipped`` or ``failures``; ``kept`` is
        the rows that were taken. ``read`` has these rows, and others perhaps, as they were before the route's steps;
        ``None`` if there were no steps or they are not known."""

    @abstractmethod
    def finish(self) -> list[Part]:
        """Close the files and name them. Called once, after the last ``add``."""


ConfigT = TypeVar("ConfigT", bound=DestinationConfig)


class Destination(ABC, Generic[ConfigT]):
    """Built from its config in the driver and again, for ``stager``, in every task; holds no open connection between
    calls. ``write`` may raise ``TransientError`` (the engine waits and calls again with the parts of every table that
    was not written) or ``RefusedError`` (nothing was written; the engine calls again with fewer records); anything else
    counts as a bug and stops the route until it is restarted. A destination that remembers batches raises
    ``ContradictionError`` if it has another batch under this number: then the route waits for a person.
    """

    capabilities: Capabilities = Capabilities()

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    @abstractmethod
    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        """A stager that writes into ``directory`` (it exists; names must not clash with other tasks: use a UUID)."""

    @abstractmethod
    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = UNRECORDED) -> Receipt:
        """Make the parts visible at the target, in order of (partition, first_offset). Parts may be an empty list.

        Where several records speak of one row, ``batch.order`` says which of them is the last."""

    def write_whole(self, batch: Batch, parts: Sequence[Part], book: TableBook = UNRECORDED) -> Receipt:
        """``write`` for a route that stops at the first record that is refused: nothing behind that record may be
        written, so if any row is refused, nothing of the batch stays written and ``RefusedError`` is raised. As it is
        here it is right for destinations that never refuse a part of a batch."""
        return self.write(batch, parts, book)

    def plan(self, parts: Sequence[Part], offline: bool = False, route: str = "") -> Sequence[str]:
        """The schema changes that ``write`` would make for these parts of a route, as statements. Changes nothing.
        ``offline``: without a look at the target, as if it were empty."""
        return []

    def newest_loads(self) -> Sequence[Loaded]:
        """The newest batch of every ledger and route that ever wrote here, table by table, without its failures. A
        target that does not remember has none. Makes nothing at the target."""
        return []

    def loads(self, scope: str, route: str) -> Sequence[Loaded]:
        """All that is remembered of a route, oldest batch first. Makes nothing at the target."""
        return []

    def place(self) -> str:
        """Where it writes to, if that is a place on disk: two routes with the same one write to the same target."""
        path = getattr(self.config, "path", None)
        return "" if path is None else str(Path(path).absolute())

    def check(self) -> str:
        """Reach the target and say in a line what was found; raise ``PenstockError`` if it cannot be used."""
        return "nothing to check"


AnyDestination = Destination[Any]
