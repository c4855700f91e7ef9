"""ClickHouse's dialect.

A table's key is its sorting key, which only CREATE TABLE can set. The name of our key is the table's comment. A merge
inserts whole rows, and ClickHouse keeps the last one of each key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from penstock.destinations.clickhouse.type_names import CLICKHOUSE_TYPES
from penstock.destinations.clickhouse.type_syntax import asked_type, bare, column_cast, not_nullable, nullable
from penstock.destinations.sql.dialect import Dialect, not_a_type
from penstock.destinations.sql.load.merge_rows import Merge
from penstock.destinations.sql.schema.schema_operations import (
    CreateTable,
    DropKey,
    Key,
    Operation,
    SetKey,
    Table,
    TypedColumn,
)
from penstock.errors import PenstockError
from penstock.flatten.casts import Cast
from penstock.flatten.inner_types import InnerType, promote, promotions

DEDUP_WINDOW = 1_000
"""How many of the newest inserts a table recognises if they are repeated."""


@dataclass(frozen=True)
class ClickhouseDialect(Dialect):
    database: str = "default"

    def parameter(self, name: str) -> str:
        return f"{{{name}:String}}"

    def identifier(self, name: str) -> str:
        escaped = name.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    def relation(self, table: str) -> str:
        return f"{self.identifier(self.database)}.{self.identifier(table)}"

    # Types

    def cast_type(self, asked: str) -> str:
        if (wrong := CLICKHOUSE_TYPES.problem(asked)) is not None:
            raise not_a_type(asked, wrong.what)
        found = asked_type(asked)
        if found is None:
            raise not_a_type(asked)
        return found

    def target(self, sql_type: str) -> Cast:
        return column_cast(sql_type)

    def wider_type(self, real: str, values: InnerType) -> str | None:
        if not real.startswith("Nullable("):
            return None  # part of a key, or made by its owner in a way that we would not keep
        there = InnerType.BOOL if bare(real) in ("UInt8", "Bool") else self.target(real).type
        if there is None:
            return None
        common = promote(there, values)
        return self.types[common] if (there, common) in self.widens else None

    # Statements

    def render(self, operation: Operation) -> str:
        match operation:
            case CreateTable(table, columns, key):
                return self._create(table, columns, key)
            case SetKey(table, key):
                raise _fixed_key(table, f"has no key ({', '.join(key.columns)})")
            case DropKey(table, key):
                raise _fixed_key(table, f"has the key ({', '.join(key.columns)})")
            case _:
                return super().render(operation)

    def widen_statement(self, table: str, column: TypedColumn, was: str) -> str:
        return f"ALTER TABLE {self.relation(table)} MODIFY COLUMN {self._definition(column)}"

    def _create(self, table: str, columns: Sequence[TypedColumn], key: Key | None) -> str:
        keys = key.columns if key else ()
        listed = ", ".join(
            self._definition(TypedColumn(c.name, not_nullable(c.type)) if c.name in keys else c) for c in columns
        )
        created = f"CREATE TABLE IF NOT EXISTS {self.relation(table)} ({listed}) ENGINE = "
        if key is None:
            return f"{created}MergeTree ORDER BY tuple() SETTINGS non_replicated_deduplication_window = {DEDUP_WINDOW}"
        return f"{created}ReplacingMergeTree ORDER BY ({self.names(keys)}) COMMENT '{key.name}'"

    # Rows by way of another table

    def create_staging(self, staged: str, columns: Sequence[TypedColumn], key: Collection[str] = ()) -> str:
        """Creates the staging table: typed like the real one, with text where ClickHouse must convert."""
        listed = []
        for column in columns:
            kind = "String" if self.target(column.type).type is None else column.type
            listed.append(TypedColumn(column.name, not_nullable(kind) if column.name in key else nullable(kind)))
        return (
            f"CREATE TABLE {self.relation(staged)} ({', '.join(map(self._definition, listed))})"
            " ENGINE = MergeTree ORDER BY tuple()"
        )

    def insert_statement(
        self,
        table: Table,
        staged: str,
        columns: Sequence[str],
        merge: Merge | None = None,
        into: str | None = None,
    ) -> str:
        """Inserts the rows of ``staged`` (a table's name) ``into`` a table, by default ``table``.

        A merge inserts whole rows: columns that a row does not carry are taken from the row that has its key now.
        """
        target = self.relation(into or table.name)
        key = merge.key if merge else ()
        waiting = self.relation(staged)
        values = ", ".join(f"{self._value(table.columns[c], c in key)} AS {self._real(table, c)}" for c in columns)
        if merge is None:
            listed = ", ".join(self._real(table, column) for column in columns)
            return f"INSERT INTO {target} ({listed}) SELECT {values} FROM {waiting}"
        rows = f"SELECT {values} FROM {self.due_rows(table, waiting, columns, merge)}"
        newer = self.is_newer(table, columns, merge)
        changes = self.update_values(table, columns, merge)
        taken = []
        for name in table.columns:
            real = self._real(table, name)
            value = f"s.{real}" if name in key else changes.get(real, f"t.{real}")
            if newer and real in changes:
                value = f"CASE WHEN {newer} THEN {value} ELSE t.{real} END"
            taken.append(f"{value} AS {real}")
        whole = self.names([column.name for column in table.columns.values()])
        return (
            f"INSERT INTO {target} ({whole}) SELECT {', '.join(taken)} FROM ({rows}) AS s LEFT JOIN"
            f" {self.current_rows(table, waiting, merge)} AS t ON {self.key_match(table, merge.key)}"
        )

    def current_rows(self, table: Table, staged: str, merge: Merge) -> str:
        """The newest rows of the staged keys; no other rows are read."""
        whole = self.names([column.name for column in table.columns.values()])
        keys = ", ".join(self._real(table, name) for name in merge.key)
        waiting = ", ".join(self._value(table.columns[name], in_key=True) for name in merge.key)
        there = f"SELECT {whole} FROM {self.relation(table.name)} FINAL"
        return f"({there} WHERE ({keys}) IN (SELECT {waiting} FROM {staged}))"

    def merged_unmapped(self, there: str, comes: str, carried: Mapping[str, str]) -> str:
        """Cuts members out of the text and joins them as text: ClickHouse's own JSON functions would rewrite
        numbers."""
        old, new = f"ifNull({there}, '{{}}')", f"ifNull({comes}, '{{}}')"
        names = ", ".join(f"if(isNull({value}), '', {self.literal(name)})" for name, value in carried.items())
        gone = f"arrayConcat(array({names or chr(39) * 2}), {_keys(new)})"
        left = f"arrayFilter(m -> NOT has({gone}, JSONExtractString(m[1])), {_members(_inside(old))})"
        texts = f"arrayMap(m -> arrayStringConcat(m), {left})"
        kept = f"if(hasAny({gone}, {_keys(old)}), arrayStringConcat({texts}, ','), {_inside(old)})"
        both = f"arrayStringConcat(arrayFilter(x -> x != '', [{kept}, {_inside(new)}]), ',')"
        return f"if(isNull({there}), {comes}, nullIf(concat('{{', {both}, '}}'), '{{}}'))"

    def is_unmapped(self, spare: str, name: str) -> str:
        kept = f"ifNull({spare}, '{{}}')"
        return f"has({_keys(kept)}, {self.literal(name)})"

    def merge(self, table: Table, staged: str, columns: Sequence[str], merge: Merge) -> str:
        return self.insert_statement(table, staged, columns, merge)

    def _real(self, table: Table, column: str) -> str:
        return self.identifier(table.columns[column].name)

    def _value(self, column: TypedColumn, in_key: bool) -> str:
        """A staged value in its column's type. A plain cast to a nullable type would turn what it cannot read into
        NULL; this one raises an error."""
        name = self.identifier(column.name)
        if self.target(column.type).type is not None:
            return name
        if in_key:
            return f"CAST({name} AS {bare(column.type)})"
        return f"if(isNull({name}), NULL, CAST(assumeNotNull({name}) AS {bare(column.type)}))"


def _inside(members: str) -> str:
    """The text of an object without its braces."""
    return f"substring({members}, 2, length({members}) - 2)"


def _members(inside: str) -> str:
    """The members between an object's braces, each as an array of pieces of text that begins with its name."""
    pieces = f"extractAll({inside}, '{_PIECES}')"
    depths = f"arrayCumSum(arrayMap(p -> multiIf(p IN ('[', '{{'), 1, p IN (']', '}}'), -1, 0), {pieces}))"
    split = f"arraySplit((p, depth) -> p = ',' AND depth = 0, {pieces}, {depths})"
    return f"arrayMap(m -> if(m[1] = ',', arrayPopFront(m), m), {split})"


def _keys(text: str) -> str:
    """The names of an object's members. ClickHouse's own function finds none if a number is beyond a double."""
    return f"arrayMap(m -> JSONExtractString(m[1]), {_members(_inside(text))})"


_PIECES = r'"(?:[^"\\\\]|\\\\.)*"|[\\[\\]{},]|[^\\[\\]{},"]+'
"""Strings, brackets, commas, and what is between them, as a literal of ClickHouse."""


def clickhouse_dialect(database: str = "default") -> ClickhouseDialect:
    return ClickhouseDialect(
        types={
            _T.STRING: "Nullable(String)",
            _T.FLOAT64: "Nullable(Float64)",
            _T.INT64: "Nullable(Int64)",
            _T.BOOL: "Nullable(UInt8)",
            _T.TIMESTAMP: "Nullable(DateTime64(6, 'UTC'))",
        },
        json_type="Nullable(String)",
        max_name=127,
        adds_if_missing=True,
        known=CLICKHOUSE_TYPES,
        # Not from a boolean to text: 1 would replace the event's true.
        widens=promotions() - {(_T.BOOL, _T.STRING)},
        database=database,
    )


_T = InnerType


def _fixed_key(table: str, problem: str) -> PenstockError:
    return PenstockError(
        "PEN-DST-040",
        f"the table '{table}' {problem}, and ClickHouse cannot change that.",
        "Set primary_key to what the table has, or choose another table.",
    )
