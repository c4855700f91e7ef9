"""Every statement that the dialect renders is ClickHouse's SQL to a parser that knows it."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from penstock.destinations.clickhouse.dialect import clickhouse_dialect
from penstock.destinations.sql.load.merge_rows import Merge
from penstock.destinations.sql.schema.schema_operations import (
    AddColumn,
    CreateTable,
    Key,
    Table,
    TypedColumn,
    WidenColumn,
)
from penstock.flatten.unmapped.unmapped_column import UNMAPPED

DIALECT = clickhouse_dialect('my "db"')
TABLE = Table(
    "events",
    {
        "id": TypedColumn("id", "Int64"),
        "day": TypedColumn("Day", "Date32"),
        "v": TypedColumn("v", "Nullable(UInt8)"),
        "ip": TypedColumn("ip", "Nullable(IPv4)"),
        "note": TypedColumn('the "note"', "LowCardinality(Nullable(String))"),
    },
)
COLUMNS = list(TABLE.columns)
SPARED = Table("events", {**TABLE.columns, UNMAPPED: DIALECT.unmapped_column})
STATEMENTS = {
    "create": DIALECT.render(
        CreateTable("events", tuple(TypedColumn(f"c{n}", kind) for n, kind in enumerate(DIALECT.types.values())))
    ),
    "create with a key": DIALECT.render(
        CreateTable("events", tuple(TABLE.columns.values()), Key("events_penstock_key", ("id", "day")))
    ),
    "add": DIALECT.render(AddColumn("select", TypedColumn("final", "LowCardinality(Nullable(String))"))),
    "widen": DIALECT.render(WidenColumn("events", TypedColumn("v", "Nullable(Int64)"), "Nullable(UInt8)")),
    "wait": DIALECT.create_staging("_penstock_waiting_1", list(TABLE.columns.values()), ["id"]),
    "take": DIALECT.insert_statement(TABLE, "_penstock_waiting_1", ["ip", "note"]),
    "merge": DIALECT.insert_statement(TABLE, "_penstock_waiting_1", ["id", "day", "v"], Merge(("id", "day"))),
    "merge by version": DIALECT.insert_statement(TABLE, "_penstock_waiting_1", COLUMNS, Merge(("id",), "v")),
    "merge in turns": DIALECT.insert_statement(
        TABLE, "_penstock_waiting_1", COLUMNS, Merge(("id",), "v", in_turns=True)
    ),
    "merge what may be kept aside": DIALECT.insert_statement(
        SPARED, "_penstock_waiting_1", list(SPARED.columns), Merge(("id",), losing=frozenset({"v"}))
    ),
    "try": DIALECT.insert_statement(TABLE, "_penstock_waiting_1", COLUMNS, Merge(("id",)), "_penstock_trial_1"),
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_every_statement_is_understood(statement: str) -> None:
    (parsed,) = sqlglot.parse(statement, read="clickhouse")
    assert parsed is not None
    assert not isinstance(parsed, exp.Command)


def test_key_columns_are_never_null_and_others_may_be() -> None:
    assert STATEMENTS["create with a key"].count("Nullable") == 3
    assert STATEMENTS["wait"].endswith(
        '("id" Int64, "Day" Nullable(String), "v" Nullable(UInt8), "ip" Nullable(String),'
        ' "the \\"note\\"" LowCardinality(Nullable(String))) ENGINE = MergeTree ORDER BY tuple()'
    )
