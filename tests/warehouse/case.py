"""A case: events and options in; tables, rows, failures and schema changes out.

What is expected is said once and holds on every engine: columns by inner type, values as Python has them. Where engines
must differ (a double keeps what numeric(38,18) does not), a case names the engines that it is for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

Event = Mapping[str, object] | bytes
"""What was sent: a document, or the very bytes where they matter."""
Row = Mapping[str, object]
"""The columns of a row that are not NULL; ``_unmapped`` as the object that it is."""
Options = Mapping[str, object]


class Delivery(StrEnum):
    """How the events of a case are cut into batches."""

    STREAM = "stream"
    """Each in a batch of its own."""
    BATCH = "batch"
    """All in one."""
    GIVEN = "given"
    """As the case says."""


class Engine(StrEnum):
    MODEL = "model"
    DUCKDB = "duckdb"
    POSTGRES = "postgres"


EVERY_ENGINE = frozenset(Engine)
NUMERIC = frozenset((Engine.MODEL, Engine.POSTGRES))
"""Engines whose FLOAT64 is numeric(38,18), that have named keys, names of 63 characters, and no NUL in text."""
MODEL_ONLY = frozenset((Engine.MODEL,))
DUCKDB_ONLY = frozenset((Engine.DUCKDB,))

DEFAULT_TABLE = "events"


@dataclass(frozen=True)
class Contents:
    """A table: its columns with their inner types (or the type that a cast asked for), and its rows as they arrived."""

    columns: Mapping[str, str]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Expected:
    tables: Mapping[str, Contents] = field(default_factory=dict)
    failed: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """The events that fail, by their number, with words that the message must have."""
    skipped: int = 0
    ddl: Sequence[str] | None = None
    """Every schema change, in PostgreSQL's words and without the schema; ``None`` does not look."""


@dataclass(frozen=True)
class Existing:
    """A table that somebody made before."""

    columns: Mapping[str, str]
    key_name: str = ""
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    name: str
    batches: Sequence[Sequence[Event]]
    expected: Mapping[Delivery, Expected]
    steps: Sequence[Mapping[str, object]] = ()
    """As they stand in a route: ``{"map": {...}}``."""
    options: Options = field(default_factory=dict)
    later: Options | None = None
    """The options of all batches but the first, where the config was changed."""
    existing: Existing | None = None
    engines: frozenset[Engine] = EVERY_ENGINE
    one_frame: bool = False
    """Whether it speaks of values that were read together: numbers in different frames of the log do not know of each
    other until both are numbers, and then of their text only the value is left."""

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch]

    def cut(self, delivery: Delivery) -> list[list[Event]]:
        match delivery:
            case Delivery.STREAM:
                return [[event] for event in self.events]
            case Delivery.BATCH:
                return [self.events]
            case Delivery.GIVEN:
                return [list(batch) for batch in self.batches]


def outcome(
    columns: Mapping[str, str] | None = None,
    rows: Sequence[Row] = (),
    *,
    tables: Mapping[str, Contents] | None = None,
    failed: Mapping[int, Sequence[str]] | None = None,
    skipped: int = 0,
    ddl: Sequence[str] | None = None,
) -> Expected:
    """What is expected, of the default table if no others are named."""
    found = dict(tables or {})
    if columns is not None:
        found[DEFAULT_TABLE] = Contents(columns, rows)
    return Expected(found, failed or {}, skipped, ddl)


def either_way(
    name: str,
    events: Sequence[Event],
    expected: Expected,
    *,
    steps: Sequence[Mapping[str, object]] = (),
    options: Options | None = None,
    existing: Existing | None = None,
    engines: frozenset[Engine] = EVERY_ENGINE,
) -> Case:
    """Stream and batch must give the same."""
    both = {Delivery.STREAM: expected, Delivery.BATCH: expected}
    return Case(name, [events], both, steps, options or {}, None, existing, engines)


def at_once(
    name: str,
    events: Sequence[Event],
    expected: Expected,
    *,
    streamed: Expected | None = None,
    steps: Sequence[Mapping[str, object]] = (),
    options: Options | None = None,
    existing: Existing | None = None,
    engines: frozenset[Engine] = EVERY_ENGINE,
    one_frame: bool = False,
) -> Case:
    """What one batch of all events gives, and what a stream of them gives instead, if that is part of the case."""
    deliveries = {Delivery.BATCH: expected} | ({Delivery.STREAM: streamed} if streamed else {})
    return Case(name, [events], deliveries, steps, options or {}, None, existing, engines, one_frame)


def in_turn(
    name: str,
    batches: Sequence[Sequence[Event]],
    expected: Expected,
    *,
    steps: Sequence[Mapping[str, object]] = (),
    options: Options | None = None,
    later: Options | None = None,
    existing: Existing | None = None,
    engines: frozenset[Engine] = EVERY_ENGINE,
) -> Case:
    """Batches that follow each other."""
    return Case(name, batches, {Delivery.GIVEN: expected}, steps, options or {}, later, existing, engines)


def mapping(*rules: Mapping[str, object], keep_unmapped: bool = True) -> list[Mapping[str, object]]:
    """The step ``map`` with these rules."""
    return [{"map": {"keep_unmapped": keep_unmapped, "fields": list(rules)}}]


def move(src: str, dst: str, **more: object) -> Mapping[str, object]:
    return {"src": src, "dst": dst, "action": "move", **more}


def at(text: str) -> datetime:
    """A moment, for the value of a timestamp."""
    return datetime.fromisoformat(text)
