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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.config.component import StepConfig, namespace_pattern
from penstock.outcome import Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.holding.decision import Decision
    from penstock.holding.item import Items


__all__ = [
    "FATE", "ArrowStep", "Fate", "HoldingState", "HoldingStep", "Outcome", "Scan", "SparkStep", "StepConfig", "TooMuch",
    "namespace_pattern",
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
class Scan:
    """What a holding step wants to know of each row of a batch when it decides: its key, as 128 bits, and 16 bits of
    its own. A row that is not ``keyed`` goes on at once."""

    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    keyed: npt.NDArray[np.bool_]
    bits: npt.NDArray[np.uint32]


class HoldingState(Protocol):
    """What a holding step remembers of one shard. It is kept in memory, and as a row of blobs that build the same state
    again, whoever decided on them: both must decide alike, because batches are replayed."""

    def decide(self, items: Items, ticks: Sequence[int], releases: Sequence[int]) -> Decision:
        """What becomes of the items of a batch, in any order, and of those that waited. ``ticks`` are the times (µs)
        that the batch has. No other clock counts. ``releases`` are stamps, points in the order of the log: after the
        decision no item waits that stands at or before one of them. The step's own rule says what becomes of it."""

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

    casts: ClassVar[Mapping[str, str]] = {}

    tick_every: float | None = None
    """Seconds between the ticks that it needs while something waits; ``None`` if it waits for no time."""

    @abstractmethod
    def scan(self, batch: pa.RecordBatch, secret: bytes) -> Scan:
        """``secret``, of 16 bytes, is for the hash of the key: the same for all batches of a route."""

    @abstractmethod
    def new_state(self) -> HoldingState:
        """A state that has seen nothing."""
