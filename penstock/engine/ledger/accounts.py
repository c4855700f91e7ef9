"""The words of the ledger's accounts: where a route stands, what became of a batch, what all of them come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.destinations.contract import Batch, TableReceipt

ACKNOWLEDGED = "acknowledged"
"""The label under which records count as skipped that an operator has declared done."""
REWOUND = "rewound"
"""The label under which items count as skipped that waited on a route when it was moved back: they come again."""


CHANGED = "changed"
"""The label of the difference where a table's part of a batch was made anew and is no longer what it was: the route's
steps have changed since it was put off."""

ADOPTED = "adopted"
"""The label under which items count as skipped that were settled under another ledger or name, nobody knows how."""

OVERFLOWING = "overflowing"
"""What is noted of a table of a batch under way whose rows go to the table for what is beyond `max_tables`."""

LOADED_FOR_OTHERS = "loaded for others"
"""What a table's part of a batch is if it has the rows of tables beyond the limit."""

PASSING_OVER = "passing over"
"""What is noted of a batch under way that is written without records which were acknowledged."""

EARLIER = "earlier"
"""The label of what was counted before the ledger kept by which step it was added, or in which table it is."""


class RouteState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    CRASHED = "crashed"
    HALTED = "halted"
    """It waits for an operator: before a record that was refused (``on_error: stop``), or because what is at the
    destination contradicts what the ledger knows."""
    STOPPED = "stopped"


@dataclass(frozen=True)
class Position:
    """``committed`` is the next offset to read; ``hold`` the lowest one that something still waits on."""

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
    """All that decides what a route delivers next, as of one moment."""

    positions: Mapping[int, Position]
    pending: Batch | None = None
    acknowledged: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Per partition, offsets ``[start, end)`` ahead of the route that an operator has declared done."""
    halt: Halt | None = None


@dataclass(frozen=True)
class Extent:
    """How much of a route's failed file belongs to committed batches."""

    entries: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class PutOff:
    """A table's part of a batch that is committed without it, because the table was away: how many rows it has."""

    table: str
    rows: int
    reason: str
    passed_over: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Per partition, offsets ``[start, end)`` of the batch that are no part of it: an operator has declared them
    done."""


@dataclass(frozen=True)
class WaitingPart:
    """A table's part of a committed batch that the table is still to get."""

    route: str
    batch: Batch
    """As it was delivered to the other tables, under the name that the route had then."""
    table: str
    rows: int
    since: float
    attempts: int
    reason: str
    passed_over: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """What was no part of it when it was put off, per partition as ``[start, end)``."""
    acknowledged: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """What an operator has declared done since then."""


@dataclass(frozen=True)
class WaitingTable:
    """What a table of a route waits for: parts of so many batches, and why it did not get the first of them."""

    rows: int
    batches: int
    first: int
    """The number of the first of them."""
    since: float
    attempts: int
    reason: str


@dataclass(frozen=True)
class Settlement:
    """What became of every item of a batch."""

    items: int
    loaded: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    waiting: int = 0
    """What is held back, and not by a table that is away."""
    added: Mapping[str, int] = field(default_factory=dict)
    tables: Sequence[TableReceipt] = ()
    put_off: Sequence[PutOff] = ()
    """What waits for its table."""
    failed_extent: Extent | None = None
    """Where the failed file ends with this batch; ``None`` if nothing failed."""
    holds: Mapping[int, int] = field(default_factory=dict)
    """Partitions in which something is held back, and the lowest offset of it."""
    seconds: float = 0.0

    @property
    def items_waiting(self) -> int:
        return self.waiting + sum(part.rows for part in self.put_off)

    @property
    def items_skipped(self) -> int:
        return sum(self.skipped.values())

    @property
    def items_added(self) -> int:
        return sum(self.added.values())


@dataclass(frozen=True)
class Totals:
    """The accounting of a route since its first batch."""

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
    """What one table of a route's target has got, over all committed batches. The rows of all tables together are the
    total's ``loaded``; what a batch under way has brought is counted apart until the batch is committed."""

    rows: int = 0
    """Rows that came for it and were taken."""
    merged: int = 0
    """Of those, how many were folded into another row of their key before they were written."""
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
    """All that the ledger knows of a route, as of one moment: its parts agree with each other."""

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
    """The tables that are without their part of committed batches; their rows together are the total's ``waiting``."""


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


class Act(StrEnum):
    """What an operator did to a route's offsets."""

    ACK = "ack"
    REWIND = "rewind"
    RESUME = "resume"
    ADOPT = "adopt"
    DROP = "drop"
    START = "start"
    """The route starts at the end of the log."""


@dataclass(frozen=True)
class Operator:
    """Who intervenes, and why."""

    name: str
    reason: str = ""


@dataclass(frozen=True)
class Intervention:
    """An operator's act, for later: the offsets ``[start, end)`` that were acknowledged, or that are read again."""

    act: Act
    at: float
    who: str
    reason: str
    partition: int
    start: int
    end: int
