"""What a destination is, and what it owes.

Writing has two halves. **Stage** runs in the Spark tasks, next to the log reader: it turns records into files that are
ready to load and returns a ``Part`` per file. **Write** runs once per batch in the driver with all parts: it makes them
visible at the target. So records are parsed once, in parallel, and what travels through Spark is a few parts.

The engine may call ``write`` again for a batch that is already written (it was killed before it could note that). A
destination with ``transactions`` must then change nothing; any other may at worst write the same rows again under the
same delivery ids. The id of a row is its batch (scope, route, number) and its record's place in the log (partition,
offset), with a running number where a record became several rows.

A destination says which of two things went wrong, and the engine acts on it:

- ``TransientError``: not now. No connection, a timeout, a lock, a full disk, a missing permission, 429, 5xx. The
  engine waits, longer each time, and tries the same batch again.
- ``RefusedError``: never, as it is. A broken constraint, a value that is bad or too long, any other 4xx. Then nothing
  of the batch may be written, now or by an earlier attempt: the engine cuts the batch in two and tries the halves, each
  as a batch of its own, down to the single refused records. A destination that can do better finds the rows itself and
  names them in its receipt; one that writes table by table must do so once a table has its rows.

A destination that notices that it has gone back, because an older copy of the target was put back, raises
``TargetWentBackError``: the route starts again, and asks for ``position``.

A third thing is not an error: *not yet*, for some of the rows, while others are taken. The limit of one key, an object
that others must come before. A destination that ``leaves_waiting`` names such rows in its receipt, in groups, and the
engine gives them to it again when they are due, in a batch without a range.

Of state only the newest counts. A destination that ``conflates_waiting`` is told what waits, gets all groups of a name
together, says which of them nobody needs any more (``Superseded``), and which are worth a try at once (``wakes``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.config.component import DestinationConfig as DestinationConfig
from penstock.destinations.source_states import SourceStates
from penstock.errors import TransientError
from penstock.outcome import Outcome

if TYPE_CHECKING:
    from penstock.destinations.sql.destination import SqlDestination


@dataclass(frozen=True)
class Capabilities:
    """What the target can do. The engine looks at these, never at the destination's name."""

    transactions: bool = False
    """A batch and its mark are written together or not at all: delivered exactly once."""
    leaves_waiting: bool = False
    """Its receipts may say that rows wait."""
    conflates_waiting: bool = False
    """Of what waits, all groups of a name are given to it together, and it may say that nobody needs a group any more.
    Only for one that ``leaves_waiting``."""
    marks: bool = False
    """It keeps a mark of the batches that it has (``newest_loads``): one without a mark of a batch that was delivered
    is not the target that it was."""


@dataclass(frozen=True)
class Part:
    """One staged file: rows of one table from one stretch of one log partition, in log order."""

    table: str
    path: str
    rows: int
    partition: int
    first_offset: int
    header: str = ""
    """What ``write`` needs to know about the file (columns and types, say), in the destination's own format."""


class Order(Protocol):
    """The order of a batch's records over all log partitions: what was acknowledged before something else was sent
    comes before it."""

    def ranks(self, partitions: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """A number for each of the records at these places: the later in the order, the higher."""


class RecordIds(Protocol):
    """Ids of records, for targets that cannot keep marks: by them somebody else may tell what came twice."""

    def id_of(self, partition: int, offset: int) -> str:
        """At most 60 letters, digits and ``-``. The same at every attempt and in every copy of the log, and never that
        of another record: neither of another log, nor after an older copy of this one was put back."""


@dataclass(frozen=True)
class Batch:
    """What is delivered. The ``number`` grows by one per batch of a route and stays the same at every attempt."""

    scope: str
    """The ledger's own id: two pipelines that share a target never confuse their batches."""
    route: str
    number: int
    ranges: Mapping[int, tuple[int, int]]
    """Per log partition the offsets ``[start, end)``. Empty for rows that have waited at the destination."""
    origin: str = ""
    """Which records these are, as text: the log's identity, the ranges and who wrote them. The same number with another
    origin is another batch (an older ledger was restored). Empty if unknown."""
    waiting: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Tables of the route that still wait for their part of earlier batches, each with the number of the first such
    batch. A destination that remembers batches keeps them from that number on, and stores this mapping with them."""
    waiting_as: Sequence[str] = field(default=(), compare=False)
    """Earlier names of the route, from before it was renamed, under which some of these parts wait."""
    waiting_groups: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False, repr=False)
    """Groups of the route whose rows wait at the destination, but for those that are given to it now: by their name the
    ``about`` of each, the oldest first. What it gets for such a group must wait too, if order matters to it. One that
    ``conflates_waiting`` may find a name here of which it is given older rows now: what came since then."""
    read_upto: Mapping[int, int] = field(default_factory=dict, compare=False, repr=False)
    """Up to which offset the route has read each partition, with this batch: so far is the target once nothing waits.
    Only for one that ``conflates_waiting``."""
    order: Order | None = field(default=None, compare=False, repr=False)
    """The order of records that change the same row; ``None``: by (partition, offset)."""
    seconds_per_table: float = field(default=float("inf"), compare=False, repr=False)
    """How long a destination may search for the refused rows of one table. A table that needs longer may get nothing,
    and is ``unavailable`` with ``TakesLong``: it gets its part later, with all the time that it needs."""
    follows: int = field(default=0, compare=False, repr=False)
    """The newest batch of the route that was delivered with a mark: the target must have it, or a newer one. 0 if it
    need not have any."""
    record_ids: RecordIds | None = field(default=None, compare=False, repr=False)
    """``None``: there is no log, and a record is known by its partition and offset alone."""


GROUP_SEPARATOR = "\x1f"
"""Between the source and the rest of a group's name."""
OF_ALL = ""
"""The subject of what a target counts of no group in particular."""


@dataclass(frozen=True)
class WaitingRows:
    """Rows that the target does not take yet, and that belong together. A target that remembers batches says the same
    of one that comes again, also if it would take them now: they come by themselves."""

    group: str
    """What they have in common: a key, say; never empty. Of one group the rows that came first are given to the target
    first. Names that are the same up to a ``GROUP_SEPARATOR`` are of one source: a retry of a target that
    ``conflates_waiting`` has all that is due of a source, or nothing of it."""
    places: pa.RecordBatch
    """Which rows (``PLACE_SCHEMA``)."""
    reason: str
    due: float
    """Seconds until they are to be tried again."""
    about: str = ""
    """What the target wants to know when it sees the group again (``Batch.waiting_groups``): a version, say. The engine
    keeps it and gives it back as it is."""


@dataclass(frozen=True)
class Superseded:
    """Rows that have waited and that nobody needs any more, because something newer is written or waits. They count as
    skipped, in the same step in which the rest of the receipt counts. Those that a retry has begun with stay: they may
    be at the target, and come once more. To say it again of rows that are gone does no harm."""

    group: str
    about: str
    """All rows that waited under this name with this ``about`` before the batch or retry that says it."""
    reason: str
    """The label under which they count."""


@dataclass(frozen=True)
class TableReceipt:
    """What happened to one table (or file, or topic) of the target. Its rows and failures are those of its parts."""

    table: str
    rows: int
    """Rows that the target accepted, now or by an earlier attempt."""
    failures: pa.RecordBatch | None = None
    """Rows that the target refused (``FAILURE_SCHEMA``); all others were written."""
    repeated: bool = False
    """The target already had this batch of the table; nothing was changed."""
    resumed: bool = False
    """The target already had some of it, from an earlier attempt; the rest was written now."""
    unavailable: TransientError | None = None
    """Why nothing was written to this table. The engine tries it again, without the tables that were written; if it
    stays unavailable, its part waits, and later batches go on without it."""
    merged: int = 0
    """How many of ``rows`` were folded into another row of the same key before they were written."""
    meant_for: Sequence[str] = ()
    """The tables that its rows were staged for, if not for this one."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Rows that the target does not need, by the reason."""
    waiting: Sequence[WaitingRows] = ()
    """Rows that it does not take yet."""
    superseded: Sequence[Superseded] = ()
    """What of earlier batches waits no longer; it is not among the rows of its parts. Only from a target that
    ``conflates_waiting``."""
    wakes: Collection[str] = ()
    """Groups that waited before, and are due at once, whatever they said then: what they wait for is there."""

    tallies: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What the target has counted besides, by subject and name: a group, and how many of its rows were changed, say.
    The ledger adds it up, each batch and retry once."""

    @property
    def accounted(self) -> int:
        """How many rows of its parts it says something about."""
        failed = self.failures.num_rows if self.failures is not None else 0
        waiting = sum(int(rows.places.num_rows) for rows in self.waiting)
        return self.rows + int(failed) + sum(self.skipped.values()) + waiting

    @property
    def staged_as(self) -> Sequence[str]:
        """The tables that these rows were staged for."""
        return self.meant_for or (self.table,)


@dataclass(frozen=True)
class Receipt:
    """What ``write`` did, table by table."""

    tables: Sequence[TableReceipt] = ()

    @classmethod
    def of_all(cls, table: str, parts: Sequence[Part]) -> Receipt:
        """For a target that took every row of the parts, under one name."""
        return cls([TableReceipt(table, sum(part.rows for part in parts))] if parts else [])

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def failures(self) -> Sequence[pa.RecordBatch]:
        return [table.failures for table in self.tables if table.failures is not None and table.failures.num_rows]

    @property
    def repeated(self) -> bool:
        return bool(self.tables) and all(table.repeated for table in self.tables)


class FailingRows(NamedTuple):
    """Rows of a key that a target does not take, though it is asked again and again."""

    seconds: float
    """For how long."""
    failures: int
    reason: str


class TargetPosition(NamedTuple):
    """How far a target says that it is in a partition of the log."""

    needs: int
    """The lowest offset that it still needs, because something there waits."""
    told: int
    """The offset behind the last record that it knows the outcome of. What waits does not keep this back, so it tells
    an older copy of the target from the target itself."""


@dataclass(frozen=True)
class LoadedTable:
    """What a target remembers about one table of a batch: its owner, its records, and the rows that it refused."""

    batch: Batch
    """Only its origin holds the ranges; the origin is empty for what an older release wrote."""
    table: str
    rows: int
    failures: pa.RecordBatch | None = None
    meant_for: Sequence[str] = ()
    """The tables that its rows were staged for, if not for this one."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """The ``waiting`` of its batch."""
    waiting_as: Sequence[str] = ()
    upto: tuple[int, int] | None = None
    """Set if the table has only the beginning of its part: partition and offset of the last record that it has, in the
    order of the log."""


class Owner(NamedTuple):
    """A route, wherever it runs."""

    scope: str
    """The id of its ledger; empty if it is not known."""
    route: str


class HeldLock:
    """A lock while it is held. This one is nobody else's."""

    def check(self) -> None:
        """Raises ``TransientError`` if another process may have it by now: nothing more may be done under it."""


class TableBook:
    """What the engine remembers about a route's tables, for people to query and for engines to agree on. This one
    records nothing, for a caller who writes alone and never asks."""

    def lock(self, name: str, lease: float | None = None) -> AbstractContextManager[HeldLock]:
        """Hold a lock over all processes that share the ledger, for targets that have none of their own. ``lease``: the
        seconds for which a holder that was killed keeps it; all who want it say the same."""
        return nullcontext(HeldLock())

    def client_id(self) -> str:
        """What tells the route from all others at a target, for as long as its ledger lives."""
        return "local"

    def note_progress(self, batch: Batch, progress: Mapping[str, str]) -> None:
        """Note how far parts of a batch are, by their names and in the destination's own words, until the batch is
        settled; an empty text forgets one. When it returns, a crash does not undo it. Notes of number 0, which no batch
        has, stay until they are forgotten."""

    def note_progress_at_once(self, batch: Batch, progress: Mapping[str, str]) -> bool:
        """The same, if it waits for nothing but this machine's disk. ``False``, and nothing is noted, if it would."""
        return False

    def progress(self, batch: Batch) -> Mapping[str, str]:
        """What was noted of a batch by an earlier attempt."""
        return {}

    def note_change(self, table: str, statement: str) -> None:
        """Note a schema change that was just made."""

    def note_paths(self, table: str, columns: Mapping[str, Sequence[str]]) -> None:
        """Note which JSON paths fill which columns."""

    def filled_tables(self) -> Collection[str]:
        """The tables for which that was ever noted."""
        return ()

    def note_made_again(self, table: str) -> None:
        """Note that a table which was filled before was not there, and was made again without its rows."""

    def former_selves(self) -> Collection[Owner]:
        """What the route was before, under another name or ledger: it has the tables of that."""
        return ()

    def overflowing(self, batch: Batch) -> Collection[str]:
        """The tables beyond the limit, whose rows of this batch go to the overflow table. That holds for every later
        attempt, because the rows may be there already."""
        return ()

    def note_overflow(self, batch: Batch, tables: Collection[str], limit: int, into: str) -> None:
        """Note that these tables overflow."""


NULL_TABLE_BOOK = TableBook()


class Stager(ABC):
    """Turns records into staged files inside one Spark task. Used by one thread, for one stretch of one partition."""

    @abstractmethod
    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        """Stage the rows of a batch. As in a step, rows that cannot be staged are in ``skipped`` or ``failures``, and
        ``kept`` has the staged ones. ``read`` has these rows, and perhaps others, as they were before the route's
        steps; ``None`` if there were no steps or the rows before them are not known."""

    def identify(self, ids: RecordIds) -> None:  # noqa: B027 -- most write down none
        """Told, before the first ``add``, the ids of the log's records, for who writes them down already here."""

    @abstractmethod
    def finish(self) -> list[Part]:
        """Close the files and return their parts. Called once, after the last ``add``."""


ConfigT = TypeVar("ConfigT", bound=DestinationConfig)


class Destination(ABC, Generic[ConfigT]):
    """Built from its config in the driver and again, for ``stager``, in every task; holds no open connection between
    calls. ``write`` may raise ``TransientError`` (the engine waits and calls again with the parts of every table that
    was not written) or ``RefusedError`` (nothing was written; the engine calls again with fewer records). Any other
    exception counts as a bug and stops the route until it is restarted. A destination that remembers batches raises
    ``ContradictionError`` if it has another batch under this number, or has lost the one that this one ``follows``:
    then the route waits for an operator.
    """

    capabilities: Capabilities = Capabilities()

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    @abstractmethod
    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        """A stager that writes into ``directory`` (it exists; names must not clash with other tasks: use a UUID)."""

    @abstractmethod
    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        """Make the parts visible at the target, in order of (partition, first_offset). Parts may be an empty list.

        Where several records change one row, ``batch.order`` says which of them is the last."""

    def write_all_or_nothing(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        """``write`` for a route that stops at the first refused record. Nothing behind that record may be written: if
        any row is refused, roll back the whole batch and raise ``RefusedError``. This default is right for destinations
        that never refuse only a part of a batch."""
        return self.write(batch, parts, book)

    def plan(self, parts: Sequence[Part], offline: bool = False, route: str = "") -> Sequence[str]:
        """The schema changes that ``write`` would make for these parts of a route, as statements. Changes nothing.
        ``offline``: do not connect, and assume an empty target."""
        return []

    def sql(self) -> SqlDestination[Any] | None:
        """This destination, if it has tables whose schema can be inspected, planned and changed."""
        return None

    def look_after(self) -> Collection[str]:
        """Called about once a second while the route runs, also if nothing comes, and perhaps while ``write`` runs: for
        what is due by the clock alone. Returns groups that wait and are due at once, whatever they said: what they wait
        for has happened. May raise ``TargetWentBackError``, as ``write`` may."""
        return ()

    def failing(self) -> Mapping[str, FailingRows]:
        """What the target does not take at the moment, by key. Asked about once a second, perhaps while ``write``
        runs."""
        return {}

    def finish(self, patience: float) -> None:
        """Called before the engine ends, after the last ``write``: wait for what is still under way at the target, for
        so many seconds at most."""

    @property
    def is_busy(self) -> bool:
        """Whether something is under way at the target though no ``write`` runs: ``finish`` waits for it."""
        return False

    def forget(self, keys: Collection[str]) -> None:
        """Of these keys, which are ``failing``, nothing waits any more: somebody has settled it in another way."""

    def open_states(self) -> AbstractContextManager[SourceStates] | None:
        """Its database, if it keeps the state of sources there, which can be listed and forgotten. To open it raises
        ``TransientError`` if it is unavailable."""
        return None

    def newest_loads(self) -> Sequence[LoadedTable]:
        """The newest batch of every ledger and route that ever wrote here, table by table, without its failures. Empty
        for a target that does not remember batches. Creates nothing at the target."""
        return []

    def loads(self, scope: str, route: str) -> Sequence[LoadedTable]:
        """All that the target remembers of a route, oldest batch first. Creates nothing at the target."""
        return []

    def position(self, route: str) -> Mapping[int, TargetPosition] | None:
        """How far the target says that it is, by log partition; it has nothing of one that it does not name. ``None``
        if it never says. Asked when the route starts, before anything is read or written. Where it is behind the
        ledger, an older copy of the target was put back, or an empty one in its place, and the route goes back; a
        target that claims to be further is not believed. So it must be noted anew with every batch, also with one
        without rows: else the route reads again what it has passed. May raise ``TransientError``. Creates nothing at
        the target."""
        return None

    @property
    def mirrors(self) -> bool:
        """Whether its tables are to have all rows of a source's: then it needs all records, from the first one on."""
        return False

    def lost_tables(self, tables: Collection[str]) -> Collection[str]:
        """Those of these tables, which had rows, that do not exist any more and that must not be made again without
        them. Creates nothing at the target."""
        return ()

    def target_path(self) -> str:
        """Where it writes to, if that is a path on disk: two routes with the same path write to the same target."""
        path = getattr(self.config, "path", None)
        return "" if path is None else str(Path(path).absolute())

    def check(self) -> str:
        """Connect to the target and describe it in one line; raise ``PenstockError`` if it cannot be used."""
        return "nothing to check"


AnyDestination = Destination[Any]
