"""What a destination is, and what it owes.

Writing has two halves. **Stage** runs in the Spark tasks, next to the log reader: it turns records into files that are
ready to load and returns a ``Part`` per file. **Write** runs once per batch in the driver with all parts: it makes them
visible at the target. So records are parsed once, in parallel, and what travels through Spark is a few parts.

The engine may call ``write`` again for a batch that was written (it was killed before it could note so). A destination
with ``transactions`` must then change nothing; any other must do no worse than write the same rows again under the same
delivery ids.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from penstock.config.component import DestinationConfig
from penstock.steps.contract import Outcome

__all__ = [
    "AnyDestination",
    "Batch",
    "Capabilities",
    "Destination",
    "DestinationConfig",
    "Part",
    "Receipt",
    "Stager",
    "TableReceipt",
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


@dataclass(frozen=True)
class Batch:
    """What is delivered: the ``number`` grows by one per batch of a route and is the same at every attempt."""

    scope: str
    """The ledger's own id: two pipelines that share a target never take each other's batches for their own."""
    route: str
    number: int
    ranges: Mapping[int, tuple[int, int]]
    """Per log partition the offsets ``[start, end)``."""


@dataclass(frozen=True)
class TableReceipt:
    """What happened to one table (or file, or topic) of the target."""

    table: str
    rows: int


@dataclass(frozen=True)
class Receipt:
    """What ``write`` did. Rows over all tables plus failures must equal the rows of the parts it was given."""

    tables: Sequence[TableReceipt] = ()
    failures: pa.RecordBatch | None = None
    """Rows the target refused (``FAILURE_SCHEMA``); all others were written."""
    repeated: bool = False
    """The target had this batch already; nothing was changed."""


class Stager(ABC):
    """Turns records into staged files inside one Spark task. Used by one thread, for one stretch of one partition."""

    @abstractmethod
    def add(self, batch: pa.RecordBatch) -> Outcome:
        """Take the rows of a batch. Like a step: what cannot be staged is in ``skipped`` or ``failures``; ``kept`` is
        the rows that were taken."""

    @abstractmethod
    def finish(self) -> list[Part]:
        """Close the files and name them. Called once, after the last ``add``."""


ConfigT = TypeVar("ConfigT", bound=DestinationConfig)


class Destination(ABC, Generic[ConfigT]):
    """Built from its config in the driver and again, for ``stager``, in every task; holds no open connection between
    calls. ``write`` may raise ``TransientError`` (the engine waits and calls again with the same parts) or
    ``RefusedError`` (the engine fails the batch's records, with the message); anything else counts as a bug and stops
    the route until it is restarted.
    """

    capabilities: Capabilities = Capabilities()

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    @abstractmethod
    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        """A stager that writes into ``directory`` (it exists; names must not clash with other tasks: use a UUID)."""

    @abstractmethod
    def write(self, batch: Batch, parts: Sequence[Part]) -> Receipt:
        """Make the parts visible at the target, in order of (partition, first_offset). Parts may be an empty list."""

    def check(self) -> str:
        """Reach the target and say in a line what was found; raise ``PenstockError`` if it cannot be used."""
        return "nothing to check"


AnyDestination = Destination[Any]
