"""Every statement that the dialect renders is Snowflake's SQL to a parser that knows it."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from penstock.destinations.snowflake.dialect import as_catalogued, snowflake_dialect
from penstock.destinations.sql.load.merge_rows import Merge
from penstock.destinations.sql.schema.schema_operations import (
    AddColumn,
    CreateTable,
    DropKey,
    Key,
    SetKey,
    Table,
    TypedColumn,
)
from penstock.flatten.casts import Form
from penstock.flatten.inner_types import InnerType

DIALECT = snowflake_dialect("shop", '"Raw"')
TABLE = Table(
    "events",
    {
        "id": TypedColumn("ID", "NUMBER(38,0)"),
        "userid": TypedColumn("UserID", "TEXT(10)"),
        "v": TypedColumn("V", "NUMBER(38,18)"),
        "at": TypedColumn("AT", "TIMESTAMP_TZ"),
        "_unmapped": TypedColumn("_UNMAPPED", "VARIANT"),
        "tags": TypedColumn("TAGS", "ARRAY"),
    },
)
COLUMNS = list(TABLE.columns)
KEY = Key("events_penstock_key", ("id", "day"))
IN_TURNS = Merge(("id",), "v", in_turns=True)
UPDATE, INSERT = DIALECT.merge_statements(TABLE, COLUMNS, Merge(("id",), "v", losing=frozenset({"at"})))
STATEMENTS = {
    "create": DIALECT.render(
        CreateTable("events", tuple(TypedColumn(f"c{n}", kind) for n, kind in enumerate(DIALECT.types.values())))
    ),
    "create with a key": DIALECT.render(CreateTable("events", (TypedColumn("id", "TEXT"),), KEY)),
    "add": DIALECT.render(AddColumn("select", TypedColumn("order", "VARIANT"))),
    "set key": DIALECT.render(SetKey("events", KEY)),
    "drop key": DIALECT.render(DropKey("events", KEY)),
    "stage a table": DIALECT.create_staging(TABLE, ["id", "userid"], Merge(("id",))),
    "put": DIALECT.put_statement("/tmp/some where/it's.parquet", "_PENSTOCK_STAGE", "f00d"),
    "copy": DIALECT.copy_into(DIALECT.relation("events"), list(TABLE.columns.values()), "_PENSTOCK_STAGE", "f00d"),
    "update": UPDATE,
    "insert": INSERT,
    "stage a table in turns": DIALECT.create_staging(TABLE, COLUMNS, IN_TURNS),
    "update in turns": DIALECT.merge_statements(TABLE, COLUMNS, IN_TURNS)[0],
    "insert in turns": DIALECT.merge_statements(TABLE, COLUMNS, IN_TURNS)[1],
    "insert alone": DIALECT.merge_statements(TABLE, ["id"], Merge(("id",)))[0],
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_every_statement_is_understood(statement: str) -> None:
    (parsed,) = sqlglot.parse(statement, read="snowflake")
    assert parsed is not None
    assert not isinstance(parsed, exp.Command)


def test_names_of_ours_are_upper_case_and_real_ones_are_as_they_are() -> None:
    assert STATEMENTS["add"] == 'ALTER TABLE "SHOP"."Raw"."SELECT" ADD COLUMN IF NOT EXISTS "ORDER" VARIANT'
    assert '"UserID"' in UPDATE
    assert '"EVENTS_PENSTOCK_KEY" PRIMARY KEY ("ID", "DAY")' in STATEMENTS["set key"]


@pytest.mark.parametrize(("name", "kept"), [("shop", "SHOP"), ('"Shop"', "Shop"), ('"a""b"', 'a"b')])
def test_a_name_in_quotes_keeps_its_case(name: str, kept: str) -> None:
    assert as_catalogued(name) == kept


@pytest.mark.parametrize(
    ("real", "inner", "precision"),
    [
        ("NUMBER(38,0)", InnerType.INT64, 0),
        ("NUMBER(5,0)", InnerType.FLOAT64, 5),
        ("NUMBER(38,18)", InnerType.FLOAT64, 38),
        ("FLOAT", InnerType.FLOAT64, 0),
        ("TEXT", InnerType.STRING, 0),
        ("TEXT(10)", InnerType.STRING, 0),
        ("BOOLEAN", InnerType.BOOL, 0),
        ("TIMESTAMP_TZ", InnerType.TIMESTAMP, 0),
        ("TIMESTAMP_NTZ", InnerType.TIMESTAMP, 0),
        ("TIME", None, 0),
    ],
)
def test_what_a_real_column_takes(real: str, inner: InnerType | None, precision: int) -> None:
    found = DIALECT.target(real)
    assert (found.type, found.precision) == (inner, precision)


def test_short_text_and_json_have_their_limits() -> None:
    assert DIALECT.target("TEXT(10)").max_length == 10
    assert DIALECT.target("OBJECT").form is Form.JSON
