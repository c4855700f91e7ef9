"""What a step is, and what it owes.

A step is built once per Spark task from its config and then sees every batch of that task. It has no memory between
batches unless it is a ``HoldingStep``, does no I/O, and imports no Spark unless it is a ``SparkStep``.

No record is ever lost silently. Of the rows that go into ``ArrowStep.apply``, each one comes out in exactly one place:
in ``kept`` (perhaps changed), counted in ``skipped``, or named in ``failures``. A step that makes several rows of one
counts those beyond the first in ``added``. The chain (``steps/chain.py``) checks the sum of every batch of every step.

``partition`` and ``offset`` identify the record of a row, ``item`` which part of it the row is: 0 for all of it. The
rows that a step adds stand together, under the place of the row that they were made of; the chain numbers them, unless
the step has (``penstock/items.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.config.component import StepConfig, namespace_pattern
from penstock.holding.item import ITEM
from penstock.outcome import NO_FAILURES, Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.holding.decision import Decision
    from penstock.holding.item import Items
    from penstock.record import Record


__all__ = [
    "FATE", "ArrowStep", "Fate", "HoldingState", "HoldingStep", "Leaving", "Outcome", "Scan", "ScannedParts", "Shard",
    "SparkStep", "StepConfig", "TooMuch", "namespace_pattern",
]  # fmt: skip

FATE = "fate"
"""The column in which a ``SparkStep`` says what becomes of each row."""


class Fate(StrEnum):
    """What becomes of a row in a ``SparkStep``; null for one that goes on."""

    SKIPPED = "skipped"
    ADDED = "added"
    """It goes on, and is one more than the step was given."""


class TooMuch(Exception):
    """The output of a step is too large for one batch; raised only if the batch has more than one record. The chain
    then tries half of the records."""


ConfigT = TypeVar("ConfigT", bound=StepConfig)


class ArrowStep(ABC, Generic[ConfigT]):
    """A stateless function over record batches of ``RECORD_SCHEMA``, run inside the process that reads the log.

    ``apply`` must keep the order of rows, must not change ``partition``, ``offset`` and ``item``, must return the
    schema it was given, and must put a row that it cannot treat into ``failures`` with a short stable ``code`` and a
    ``message`` for a person. It raises only for bugs, and ``TooMuch``. The same batch gives the same outcome, always:
    batches are replayed.
    """

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    casts: Mapping[str, str] = {}
    """SQL types that this step asks for by JSON path (``/price`` -> ``numeric(12,2)``); typed destinations obey."""

    @abstractmethod
    def apply(self, batch: pa.RecordBatch) -> Outcome: ...


class SparkStep(ABC, Generic[ConfigT]):
    """A function over the route's streaming ``DataFrame``, for shuffles, state and SQL.

    ``apply`` is given the columns of ``RECORD_SCHEMA`` and returns them with one more, ``FATE``. It takes no row away
    itself: the engine counts the rows by their fate, leaves out the skipped ones, and refuses a batch of which the step
    does not return every row. A batch that is delivered in parts is given to it anew, as a static frame.
    """

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    casts: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def apply(self, frame: DataFrame) -> DataFrame: ...


@dataclass(frozen=True)
class ScannedParts:
    """The items of a scan, where they are parts of rows. A row has at least one, or is skipped, or fails."""

    rows: npt.NDArray[np.int64]
    """Which row of the batch each item is a part of; ascending."""
    numbers: npt.NDArray[np.int64]
    """The number of each in its record; 0 if it is all of it."""
    skipped: int = 0
    """Rows without any part."""
    failures: pa.RecordBatch = field(default_factory=lambda: NO_FAILURES)
    """Rows, or parts of them, that fail: they are no items."""


@dataclass(frozen=True)
class Scan:
    """What a holding step wants to know of each item of a batch when it decides: its key, as 128 bits, and 16 bits of
    its own. One that is not ``keyed`` goes on at once."""

    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    keyed: npt.NDArray[np.bool_]
    bits: npt.NDArray[np.uint32]
    more: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    """The columns that the step's ``item_type`` has beyond those of ``ITEM``."""
    parts: ScannedParts | None = None
    """``None``: every row is an item."""


@dataclass(frozen=True)
class Leaving:
    """What a holding step must know of those who get what it releases."""

    secret: bytes
    """That of ``HoldingStep.scan``."""
    as_otlp: bool = False
    """Whether telemetry leaves as OTLP requests, because that is what the destination takes; else as JSON."""


@dataclass(frozen=True)
class Shard:
    """Which part of the keys a state is for."""

    index: int
    count: int
    """How many shards there are."""
    secret: bytes
    """That of ``HoldingStep.scan``."""


class HoldingState(Protocol):
    """What a holding step remembers of one shard. It is kept in memory, and as a row of blobs that build the same state
    again, whoever decided on them: both must decide alike, because batches are replayed."""

    def decide(self, items: Items, ticks: Sequence[int], releases: Sequence[int], commands: Items = ...) -> Decision:
        """What becomes of the items of a batch, in any order, and of those that waited. ``ticks`` are the times (µs)
        that the batch has. No other clock counts. ``releases`` are stamps, points in the order of the log: after the
        decision no item waits that stands at or before one of them. The step's own rule says what becomes of it.
        ``commands`` are what ``HoldingStep.commands`` makes of the batch's other control records."""

    def apply(self, blob: bytes) -> None:
        """Make the change that the next blob describes."""

    def drop(self, blobs: int) -> None:
        """So many of the oldest blobs were removed, because the others say all that they said."""


class HoldingStep(ABC, Generic[ConfigT]):
    """A step that decides about a row by what came before it, and may keep it back until more has come.

    It never sees data and state together. ``scan`` runs where the log is read. What it finds goes by key to one of the
    route's shards, where a ``HoldingState`` decides with what it remembers. The engine then fetches what is released
    from the log, runs the steps before this one again, and goes on with those behind it. It keeps the log from removing
    what waits.
    """

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    casts: Mapping[str, str] = {}

    tick_every: float | None = None
    """Seconds between the ticks that it needs while something waits; ``None`` if it waits for no time."""

    flush_command: str | None = None
    """The name of the command that lets go of all that it knows, for another pipeline; ``None`` if there is none."""
    flush_on_shutdown: bool = False
    """Whether it is told so before its engine stops."""

    item_type: ClassVar[np.dtype[np.void]] = ITEM
    """What travels from scan to decision: ``ITEM``, or that and more columns."""
    released_type: ClassVar[np.dtype[np.void]] = ITEM
    """What travels from decision to release."""

    @abstractmethod
    def scan(self, batch: pa.RecordBatch, secret: bytes) -> Scan:
        """``secret``, of 16 bytes, is for the hash of the key: the same for all batches of a route."""

    @abstractmethod
    def new_state(self, shard: Shard) -> HoldingState:
        """A state that has seen nothing."""

    def new_commands(self, behind: Callable[[], int]) -> Iterable[tuple[str, str]]:
        """What it wants to be told now, by what it finds elsewhere and by how many records its route has not read:
        names and JSON, for ``commands``. Asked about once a second, by one thread. May raise any error: that is logged,
        and the step is asked again."""
        return ()

    @property
    def settable(self) -> Sequence[str]:
        """The names of the percentages that operators may set while it runs."""
        return ()

    def setting(self, name: str, percentage: float) -> tuple[str, str]:
        """A command that sets one of these: its name and JSON, for ``commands``."""
        raise LookupError(name)

    def commands(self, records: pa.RecordBatch) -> Items:
        """Control records of the route's own, as items that every shard is given; those that mean nothing to it are
        left out. Their places, and the bits from 27 on, are the engine's."""
        return np.empty(0, self.item_type)

    def release(self, rows: pa.RecordBatch, items: Items, leaving: Leaving) -> pa.RecordBatch:
        """The rows that leave of these, among them one for each of ``items``, with its number as ``item``. The items
        are all that leave of the rows, of ``released_type``, sorted by place and number. Only a step whose
        ``released_type`` is its own is asked: the items of others are rows."""
        return rows

    def cut_out(
        self, record: Record, item: int, leaving: Leaving, notes: Mapping[tuple[int, int, int], bytes]
    ) -> Record:
        """A record that failed in one item, as that item left: with no more of its data than the item needs. It has
        ``Header.ONLY_ITEM`` then, and ``scan`` and ``release`` know the item by its number. ``notes``: items as the
        step has let them go, in bytes of ``released_type``, by partition, offset and number. It need not have all."""
        return record

    def make(self, items: Items, leaving: Leaving) -> pa.RecordBatch:
        """Rows for items that the step has made (``MADE``), which no record has: their places are those of the
        command that it was told."""
        raise AssertionError(f"{type(self).__name__} makes nothing")
