"""An engine that is nothing but its rules: tables are Python lists, every value is checked against its column's type.

It speaks PostgreSQL's words (the statements that it is sent are read back, and it does what they say and nothing else)
and refuses what PostgreSQL would: a value of another type, NUL, a number too large, a second row of a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Context, Decimal
from functools import cached_property

import pyarrow as pa

from penstock.destinations.contract import Batch, Owner, TableBook
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.dialect import PostgresDialect, postgres_dialect
from penstock.destinations.sql.destination import SqlDestination
from penstock.destinations.sql.load.merge_rows import AFTER, TURN, UPTO, Merge
from penstock.destinations.sql.load.table_load import Load
from penstock.destinations.sql.marks import Mark
from penstock.destinations.sql.schema.schema_operations import Key, Table, TypedColumn
from penstock.destinations.sql.session import Session
from penstock.errors import RefusedError, TransientError
from penstock.flatten.unmapped.unmapped_column import UNMAPPED

SCHEMA = "public"


@dataclass
class ModelTable:
    columns: dict[str, str]
    key: Key | None = None
    rows: list[dict[str, object]] = field(default_factory=list)


@dataclass
class Store:
    """What the engine keeps. Tables that are ``away`` cannot be reached now; neither can anything while it is down."""

    tables: dict[str, ModelTable] = field(default_factory=dict)
    marks: dict[tuple[str, str, int, str], Mark] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    down: bool = False
    registered: list[tuple[str, Owner]] = field(default_factory=list)


class ModelDestination(SqlDestination[PostgresConfig]):
    def __init__(self, config: PostgresConfig, store: Store) -> None:
        super().__init__(config)
        self._store = store

    @cached_property
    def dialect(self) -> PostgresDialect:
        return postgres_dialect(SCHEMA, self.config.float)

    @contextmanager
    def session(self) -> Iterator[Session]:
        if self._store.down:
            raise TransientError("PEN-DST-027", "the model is down.", "The batch is tried again.")
        yield ModelSession(self._store, self.dialect)


class ModelSession(Session):
    def __init__(self, store: Store, dialect: PostgresDialect) -> None:
        self._store = store
        self.dialect: PostgresDialect = dialect

    def table(self, name: str) -> Table | None:
        found = self._store.tables.get(name)
        if found is None:
            return None
        return Table(name, {column: TypedColumn(column, kind) for column, kind in found.columns.items()}, found.key)

    def run_ddl(self, statements: Sequence[str]) -> None:
        for statement in statements:
            _apply(self._store.tables, statement)

    def select(self, query: str) -> Sequence[Sequence[object]]:
        raise NotImplementedError(query)

    def registered_tables(self) -> Sequence[tuple[str, Owner]]:
        return list(self._store.registered)

    def register_tables(self, tables: Collection[str], owner: Owner) -> None:
        self._store.registered += [(table, owner) for table in tables]

    def marked_tables(self) -> Sequence[tuple[str, str, str]]:
        return [(scope, route, table) for scope, route, _, table in self._store.marks]

    def lock_schema(self, table: str, book: TableBook) -> AbstractContextManager[None]:
        return nullcontext()

    def find_mark(self, batch: Batch, table: str) -> Mark | None:
        return self._store.marks.get((batch.scope, batch.route, batch.number, table))

    def newest_marks(self) -> list[Mark]:
        marks = self._store.marks.values()
        return [m for m in marks if m.batch.number == self.newest_batch(m.batch.scope, m.batch.route)]

    def newest_batch(self, scope: str, route: str) -> int:
        found = (mark.batch for mark in self._store.marks.values())
        return max((batch.number for batch in found if (batch.scope, batch.route) == (scope, route)), default=0)

    def marks(self, scope: str, route: str) -> list[Mark]:
        found = [m for m in self._store.marks.values() if (m.batch.scope, m.batch.route) == (scope, route)]
        return sorted(found, key=lambda mark: mark.batch.number)

    def _load(self, load: Load) -> None:
        if load.table.name in self._store.away:
            raise TransientError(
                "PEN-DST-027", f"the table {load.table.name} is unavailable.", "The batch is tried again."
            )
        table = self._store.tables[load.table.name]
        columns = {column.name: column.type for column in load.staged_columns(self.dialect)}
        came = [row for reader in load.rows.readers() for row in _rows(reader, columns)]
        if load.merge:
            assert set(load.rows.columns()) <= set(table.columns)
            rows = _merged(table, came, load.merge)
        else:
            rows = [*table.rows, *came]
        _check_key(table.key, rows)
        if (mark := load.mark()) is not None:
            batch = mark.batch
            self._store.marks[batch.scope, batch.route, batch.number, mark.table] = mark
            table.rows = rows


# Loading


def _rows(reader: pa.RecordBatchReader, columns: Mapping[str, str]) -> Iterator[dict[str, object]]:
    for batch in reader:
        for row in batch.to_pylist():
            yield {name: _checked(name, value, columns[name]) for name, value in row.items() if value is not None}


_PYTHON: dict[str, type] = {
    "text": str,
    "jsonb": str,
    "bigint": int,
    "integer": int,
    "smallint": int,
    "boolean": bool,
    "double precision": float,
    "timestamp with time zone": datetime,
}


def _checked(name: str, value: object, kind: str) -> object:
    """The value as the column keeps it. What PostgreSQL refuses is refused, what is not of its type is a defect."""
    if isinstance(value, str) and "\0" in value:
        raise _refused(f"{name} has a NUL")
    if kind.startswith("numeric"):
        return _numeric(name, value, kind)
    if kind == "jsonb":
        _check_json(name, str(value))
    if kind.startswith("character varying"):
        length = int(re.findall(r"\d+", kind)[0])
        if len(str(value)) > length:
            raise _refused(f"{name} is too long")
    elif found := re.fullmatch(r"timestamp\((\d)\) with time zone", kind):
        assert isinstance(value, datetime), f"{value!r} for {name} {kind}"
        assert value.microsecond % 10 ** (6 - int(found[1])) == 0, f"{value} would be rounded in {name} {kind}"
    elif kind in _PYTHON:
        assert type(value) is _PYTHON[kind], f"{value!r} for {name} {kind}"
    return value


def _numeric(name: str, value: object, kind: str) -> Decimal:
    assert type(value) in (int, float, Decimal), f"{value!r} for {name} {kind}"
    precision, scale = map(int, re.findall(r"\d+", kind))
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(str(value))
    if abs(number) >= Decimal(10) ** (precision - scale):
        raise _refused(f"{name} overflows {kind}")
    return number.quantize(Decimal(1).scaleb(-scale), context=Context(prec=precision + scale))


def _check_json(name: str, text: str) -> None:
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except ValueError as error:
        raise _refused(f"{name} is not JSON: {error}") from error
    if "\\u0000" in text.replace("\\\\", ""):
        raise _refused(f"{name} has a NUL")


def _merged(table: ModelTable, came: Sequence[dict[str, object]], merge: Merge) -> list[dict[str, object]]:
    def place(row: Mapping[str, object]) -> tuple[object, ...]:
        return tuple(row[name] for name in merge.key)

    rows = {place(row): row for row in table.rows}
    due = [row for row in came if _is_due(row, rows.get(place(row), {}), merge)]
    assert len({place(row) for row in due}) == len(due), "a key comes twice in one load"
    for row in due:
        known = rows.get(place(row), {})
        if merge.version is None or not _is_older(row.get(merge.version), known.get(merge.version)):
            carried = {name: value for name, value in row.items() if name not in (TURN, AFTER, UPTO)}
            rows[place(row)] = _changed(known, carried, merge)
    return list(rows.values())


def _is_due(row: Mapping[str, object], known: Mapping[str, object], merge: Merge) -> bool:
    there = known.get(merge.version) if merge.version else None
    if TURN not in row:
        return True
    if there is None:
        return row[TURN] == 0
    return UPTO in row and not _is_older(row[UPTO], there) and (AFTER not in row or _is_older(row[AFTER], there))


def _changed(known: Mapping[str, object], carried: Mapping[str, object], merge: Merge) -> dict[str, object]:
    """A field that is carried takes the place of what was there, in its column or aside from it."""
    old, new = _aside(known), _aside(carried)
    assert all(name not in carried for name in new), "a value is in two places"
    assert merge.losing >= {name for name in new if name in known}, "a column would keep what is outdated"
    kept = {name: value for name, value in old.items() if name not in carried} | new
    row = {name: value for name, value in {**known, **carried}.items() if name not in new and name != UNMAPPED}
    spelled = ",".join(f"{json.dumps(name)}:{_spelled(value)}" for name, value in kept.items())
    return {**row, UNMAPPED: f"{{{spelled}}}"} if kept else row


def _aside(row: Mapping[str, object]) -> dict[str, object]:
    return dict(json.loads(str(row.get(UNMAPPED, "{}")), parse_float=Decimal))


def _spelled(value: object) -> str:
    if isinstance(value, list):
        return "[" + ",".join(map(_spelled, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_spelled(inner)}" for name, inner in value.items()) + "}"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


def _is_older(came: object, there: object) -> bool:
    return there is not None and (came is None or bool(came < there))  # type: ignore[operator]


def _check_key(key: Key | None, rows: Sequence[Mapping[str, object]]) -> None:
    if key is None:
        return
    places = [tuple(row.get(name) for name in key.columns) for row in rows]
    if any(None in place for place in places) or len(set(places)) < len(places):
        raise _refused(f"the key {key.name} is violated")


def _refused(what: str) -> RefusedError:
    return RefusedError("PEN-DST-024", what, "Nothing of it was written.")


# Statements

_RELATION = rf'"{SCHEMA}"\."(?P<table>[a-z0-9_]+)"'
_COLUMN = r'"(?P<name>[a-z0-9_]+)" (?P<kind>[a-z][a-z0-9_ ]*(?:\([0-9, ]+\))?[a-z ]*)'
_KEY = r'CONSTRAINT "(?P<key>[a-z0-9_]+)" PRIMARY KEY \((?P<columns>[^)]*)\)'
_CREATE = re.compile(rf"CREATE TABLE IF NOT EXISTS {_RELATION} \((?P<body>.*)\)")
_ADD = re.compile(rf"ALTER TABLE {_RELATION} ADD COLUMN {_COLUMN}")
_WIDEN = re.compile(rf"ALTER TABLE {_RELATION} ALTER COLUMN \"(?P<name>[a-z0-9_]+)\" TYPE (?P<kind>.+?) USING .*")
_SET_KEY = re.compile(rf"ALTER TABLE {_RELATION} ADD {_KEY}")
_FREE = r'(?P<free>(?:, ALTER COLUMN "[a-z0-9_]+" DROP NOT NULL)+)'
_DROP_KEY = re.compile(rf'ALTER TABLE {_RELATION} DROP CONSTRAINT "(?P<key>[a-z0-9_]+)"{_FREE}')


def _apply(tables: dict[str, ModelTable], statement: str) -> None:
    if found := _CREATE.fullmatch(statement):
        body, key = found["body"], None
        if constraint := re.search(f"(, )?{_KEY}$", body):
            key, body = _key(constraint), body[: constraint.start()]
        definitions = re.split(r", (?=\")", body)
        columns = dict(_column(definition) for definition in definitions)
        assert len(columns) == len(definitions), f"a column twice: {statement}"
        tables.setdefault(found["table"], ModelTable(columns, key))
    elif found := _ADD.fullmatch(statement):
        table = tables[found["table"]]
        assert found["name"] not in table.columns, f"a column twice: {statement}"
        table.columns[found["name"]] = found["kind"]
    elif found := _WIDEN.fullmatch(statement):
        table = tables[found["table"]]
        was = table.columns[found["name"]]
        table.columns[found["name"]] = found["kind"]
        for row in table.rows:
            if found["name"] in row:
                row[found["name"]] = _widened(row[found["name"]], was, found["kind"])
    elif found := _SET_KEY.fullmatch(statement):
        table = tables[found["table"]]
        assert table.key is None
        _check_key(_key(found), table.rows)
        table.key = _key(found)
    elif found := _DROP_KEY.fullmatch(statement):
        table = tables[found["table"]]
        assert table.key is not None
        assert table.key.name == found["key"]
        assert re.findall(r'"([a-z0-9_]+)"', found["free"]) == list(table.key.columns)
        table.key = None
    else:
        raise AssertionError(f"not a statement that an engine would take: {statement}")


def _column(definition: str) -> tuple[str, str]:
    found = re.fullmatch(_COLUMN, definition)
    assert found is not None, f"not a column: {definition}"
    return found["name"], found["kind"]


def _key(found: re.Match[str]) -> Key:
    return Key(found["key"], tuple(re.findall(r'"([^"]+)"', found["columns"])))


def _widened(value: object, was: str, kind: str) -> object:
    if kind != "text":
        return int(value) if kind == "bigint" else Decimal(int(value))  # type: ignore[call-overload]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return f"{value:f}".rstrip("0").rstrip(".")
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return str(value)
