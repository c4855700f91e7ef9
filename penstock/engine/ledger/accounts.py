"""The values of the ledger: where a route stands, what became of a batch, and the totals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from penstock.destinations.contract import Batch, Superseded, TableReceipt

FORGOTTEN = "forgotten"
"""The skip label of what waited for a source that an operator has forgotten."""
ACKNOWLEDGED = "acknowledged"
"""The skip label of records that an operator has acknowledged."""
REWOUND = "rewound"
"""The skip label of items that waited when their route was rewound: they come again."""


CHANGED = "changed"
"""The label of the difference where a table's part of a batch was staged again and has other rows: the route's steps
have changed since it was put off."""

ADOPTED = "adopted"
"""The skip label of items that were settled under another ledger or name, nobody knows how."""

OVERFLOWING = "overflowing"
"""The status of a table in a batch under way whose rows go to the overflow table (beyond `max_tables`)."""

LOADED_FOR_OTHERS = "loaded for others"
"""The status of the overflow table's part of a batch: it has rows of tables beyond the limit."""

PASSING_OVER = "passing over"
"""The note on a batch under way that is written without acknowledged records."""

EARLIER = "earlier"
"""The label of what was counted before the ledger kept counts by step and by table."""


class RouteState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    CRASHED = "crashed"
    HALTED = "halted"
    """It waits for an operator: before a record that was refused (``on_error: stop``), or because the destination
    contradicts the ledger."""
    STOPPED = "stopped"


@dataclass(frozen=True)
class Position:
    """``committed`` is the next offset to read; ``hold`` the lowest one that is kept for what still waits."""

    committed: int
    hold: int


@dataclass(frozen=True)
class Halt:
    """The record that a route stopped at, and why."""

    partition: int
    offset: int
    step: str
    code: str
    message: str


@dataclass(frozen=True)
class Standing:
    """Everything that decides what a route delivers next, as of one moment."""

    positions: Mapping[int, Position]
    pending: Batch | None = None
    """The batch that was begun and not committed, if any: its range must be delivered exactly as it was fixed."""
    acknowledged: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Per partition, offsets ``[start, end)`` ahead of the route that an operator has acknowledged."""
    halt: Halt | None = None


@dataclass(frozen=True)
class Extent:
    """How much of a route's failed file belongs to committed batches."""

    entries: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class DeferredPart:
    """A table's part of a batch that is committed without it, because the table was unavailable."""

    table: str
    rows: int
    reason: str
    passed_over: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Per partition, offsets ``[start, end)`` of the batch that are left out: an operator has acknowledged them."""


@dataclass(frozen=True)
class WaitingPart:
    """A table's part of a committed batch that the table is still to get."""

    route: str
    batch: Batch
    """As it was delivered to the other tables, under the route's name at that time."""
    table: str
    rows: int
    since: float
    attempts: int
    reason: str
    passed_over: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """What was left out when it was put off, per partition as ``[start, end)``."""
    acknowledged: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """What an operator has acknowledged since then."""


@dataclass(frozen=True)
class WaitingTable:
    """What a table of a route waits for: parts of so many batches, and why the first one failed."""

    rows: int
    batches: int
    first: int
    """The number of the first of them."""
    since: float
    attempts: int
    reason: str


@dataclass(frozen=True)
class Postponed:
    """Items that the destination does not take yet, though their batch is committed."""

    group: str
    """What they have in common; items of one group are given to the destination in their order. Empty for those of a
    batch that it has refused as a whole."""
    places: pa.RecordBatch
    """Which items (``PLACE_SCHEMA``, and perhaps notes of their step)."""
    reason: str
    delay: float = 0.0
    """Seconds until they are to be tried again."""
    about: str = ""
    """What the destination wants to know when it sees the group again."""

    @property
    def rows(self) -> int:
        return int(self.places.num_rows)


@dataclass(frozen=True)
class PostponedGroup(Postponed):
    id: int = 0
    attempts: int = 0
    number: int | None = None
    """Under which it is being tried; it may be at the destination. All groups with this number are tried together."""
    since: float = 0.0
    """When items of this name began to wait, of those that were tried together ever since."""


@dataclass(frozen=True)
class QueuedGroup:
    """What decides when a group that waits is tried."""

    id: int
    group: str
    rows: int
    number: int | None
    is_due: bool


@dataclass(frozen=True)
class Settlement:
    """What became of every item of a batch."""

    items: int
    loaded: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    waiting: int = 0
    """What steps hold back of the batch, less what they release of earlier ones; unavailable tables are in
    ``deferred``."""
    added: Mapping[str, int] = field(default_factory=dict)
    tables: Sequence[TableReceipt] = ()
    deferred: Sequence[DeferredPart] = ()
    """What waits for its table."""
    postponed: Sequence[Postponed] = ()
    """What waits for the destination to take it."""
    superseded: Sequence[Superseded] = ()
    """What waited for that before, and waits no longer."""
    wakes: Collection[str] = ()
    """Groups that waited before, and are due at once."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What the holding step has counted in the batch, by names of its own."""
    levels: Mapping[str, int] = field(default_factory=dict)
    """How much it has of what after the batch."""
    failed_extent: Extent | None = None
    """Where the failed file ends with this batch; ``None`` if nothing failed."""
    holds: Mapping[int, int | None] = field(default_factory=dict)
    """Per partition, the lowest offset that steps hold back from now on, ``None`` for nothing. In a partition that is
    not named they hold what they held."""
    seconds: float = 0.0
    marked: Collection[str] = ()
    """The tables of which the destination has a mark under this route and number."""

    @property
    def items_waiting(self) -> int:
        at_tables = sum(part.rows for part in self.deferred)
        return self.waiting + at_tables + sum(group.rows for group in self.postponed)

    @property
    def items_skipped(self) -> int:
        return sum(self.skipped.values())

    @property
    def items_added(self) -> int:
        return sum(self.added.values())


@dataclass(frozen=True)
class Totals:
    """The counts of a route since its first batch."""

    items: int = 0
    added: int = 0
    loaded: int = 0
    skipped: int = 0
    failed: int = 0
    waiting: int = 0

    @property
    def adds_up(self) -> bool:
        return self.items + self.added == self.loaded + self.skipped + self.failed + self.waiting


@dataclass(frozen=True)
class TableCount:
    """What one table has received over all committed batches. The rows of all tables sum up to the total's ``loaded``;
    those of a batch under way are counted apart until it is committed."""

    rows: int = 0
    """Rows that the table took."""
    merged: int = 0
    """How many of them were folded into another row of their key before they were written."""
    under_way: int = 0
    """Rows that the table has of a batch that is not committed yet."""

    @property
    def written(self) -> int:
        """Rows that were inserted or updated."""
        return self.rows - self.merged


@dataclass(frozen=True)
class Activity:
    state: RouteState
    since: float
    message: str


@dataclass(frozen=True)
class Account:
    """Everything that the ledger knows of a route, as of one moment: its parts are consistent."""

    standing: Standing
    began_at: float | None
    """When the batch under way was begun, if there is one."""
    activity: Activity | None
    totals: Totals
    tables: Mapping[str, TableCount]
    skipped_by: Mapping[str, int]
    added_by: Mapping[str, int]
    failed_open: int
    waiting: Mapping[str, WaitingTable] = field(default_factory=dict)
    """The tables that lack their part of committed batches."""
    postponed: int = 0
    """Items that the destination does not take yet. The rest of the total's ``waiting`` is held by steps."""


@dataclass(frozen=True)
class CommittedBatch:
    number: int
    ranges: Mapping[int, tuple[int, int]]
    committed_at: float
    items: int
    loaded: int
    skipped: int
    failed: int
    waiting: int
    seconds: float


@dataclass(frozen=True)
class MarkedTable:
    """A table's part of a batch, of which the destination must have a mark."""

    number: int
    table: str
    rows: int
    ranges: Mapping[int, tuple[int, int]] | None
    """Of the batch; ``None`` if it is not listed any more."""


class Act(StrEnum):
    """What an operator did to a route's offsets."""

    ACK = "ack"
    REWIND = "rewind"
    RESUME = "resume"
    ADOPT = "adopt"
    DROP = "drop"
    RELEASE = "release"
    """What waited in the route's holding step was let go."""
    COMMAND = "command"
    """The route's holding step was told something of its own."""
    START = "start"
    """The route starts at the end of the log."""


@dataclass(frozen=True)
class Operator:
    """Who intervenes, and why."""

    name: str
    reason: str = ""


@dataclass(frozen=True)
class Intervention:
    """A recorded act of an operator: the offsets ``[start, end)`` were acknowledged, are read again, or wait no
    longer."""

    act: Act
    at: float
    who: str
    reason: str
    partition: int
    start: int
    end: int
