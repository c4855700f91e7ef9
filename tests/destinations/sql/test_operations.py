import pytest

from penstock.destinations.duckdb.dialect import DUCKDB
from penstock.destinations.sql.schema.schema_operations import (
    AddColumn,
    CreateTable,
    DropKey,
    Key,
    Operation,
    SetKey,
    Table,
    TypedColumn,
    Wanted,
    WidenColumn,
    our_key,
    plan_patch,
)
from penstock.errors import PenstockError
from penstock.flatten.column import Column
from penstock.flatten.inner_types import InnerType

A, B = TypedColumn("a", "BIGINT"), TypedColumn("b", "VARCHAR")


SPARE = TypedColumn("_unmapped", "JSON")
KEY = our_key("t", ["a"], 255)
assert KEY is not None


def table(*columns: TypedColumn, key: Key | None = None) -> Table:
    return Table("t", {column.name: column for column in columns}, key)


C = TypedColumn("c", "VARCHAR")
FOREIGN = Key("t_pkey", ("b",))


@pytest.mark.parametrize(
    ("wanted", "existing", "operations"),
    [
        (Wanted([A, B], spare=SPARE), None, [CreateTable("t", (A, B))]),
        (Wanted([A, B], KEY, spare=SPARE), None, [CreateTable("t", (A, B), KEY)]),
        (Wanted([A, B], spare=SPARE, spare_needed=True), None, [CreateTable("t", (A, B, SPARE))]),
        (Wanted([A, B], spare=SPARE), table(A), [AddColumn("t", B)]),
        (Wanted([A, B], spare=SPARE), table(B, A, C), []),
        (Wanted([A, B], spare=SPARE), table(C), [AddColumn("t", A), AddColumn("t", B)]),
        # Room runs out: what comes first gets it, but the key is never left out.
        (Wanted([A, B, C], max_columns=2, spare=SPARE), None, [CreateTable("t", (A, B, SPARE))]),
        (Wanted([C, B, A], KEY, max_columns=2, spare=SPARE), None, [CreateTable("t", (C, A, SPARE), KEY)]),
        (Wanted([A, B, C], max_columns=2, spare=SPARE), table(A), [AddColumn("t", B), AddColumn("t", SPARE)]),
        (Wanted([A, B, C], max_columns=2, spare=SPARE), table(A, SPARE), [AddColumn("t", B)]),
        (Wanted([A, B], max_columns=1, spare=SPARE), table(A, B), []),
        # A frozen table gets the spare column and nothing else.
        (Wanted([A, B], frozen=True, spare=SPARE), table(A), [AddColumn("t", SPARE)]),
        (Wanted([A, B], frozen=True, spare=SPARE), table(A, SPARE), []),
        (Wanted([A], frozen=True, spare=SPARE), table(A, B), []),
        (Wanted([A, B], frozen=True, spare=SPARE), None, [CreateTable("t", (A, B))]),
        # Keys: ours follow the config, others stay.
        (Wanted([A], KEY, spare=SPARE), table(A), [SetKey("t", KEY)]),
        (Wanted([A], KEY, spare=SPARE), table(A, key=KEY), []),
        (Wanted([A], None, spare=SPARE), table(A, key=KEY), [DropKey("t", KEY)]),
        (
            Wanted([A, B], our_key("t", ["a", "b"], 255), spare=SPARE),
            table(A, B, key=KEY),
            [DropKey("t", KEY), SetKey("t", Key("t_penstock_key", ("a", "b")))],
        ),
        (Wanted([A], KEY, spare=SPARE), table(A, B, key=FOREIGN), []),
        (Wanted([A], None, spare=SPARE), table(A, B, key=FOREIGN), []),
        (
            Wanted([A], widened=[TypedColumn("a", "VARCHAR")], spare=SPARE),
            table(A),
            [WidenColumn("t", TypedColumn("a", "VARCHAR"), "BIGINT")],
        ),
    ],
)
def test_a_plan_adds_what_is_missing_and_nothing_else(
    wanted: Wanted, existing: Table | None, operations: list[Operation]
) -> None:
    assert plan_patch("t", wanted, existing) == operations


@pytest.mark.parametrize(
    ("operation", "sql"),
    [
        (CreateTable("t", (A, B)), 'CREATE TABLE IF NOT EXISTS "t" ("a" BIGINT, "b" VARCHAR)'),
        (AddColumn("t", A), 'ALTER TABLE "t" ADD COLUMN "a" BIGINT'),
        (AddColumn('t"; --', TypedColumn('a"b', "DATE")), 'ALTER TABLE "t""; --" ADD COLUMN "a""b" DATE'),
    ],
)
def test_an_operation_is_one_statement_with_quoted_names(operation: Operation, sql: str) -> None:
    assert DUCKDB.render(operation) == sql


@pytest.mark.parametrize(
    ("inner", "sql_type", "expected"),
    [
        (InnerType.STRING, None, "VARCHAR"),
        (InnerType.FLOAT64, None, "DOUBLE"),
        (InnerType.INT64, None, "BIGINT"),
        (InnerType.BOOL, None, "BOOLEAN"),
        (InnerType.TIMESTAMP, None, "TIMESTAMP WITH TIME ZONE"),
        (InnerType.FLOAT64, "numeric(12, 2)", "DECIMAL(12,2)"),
        (InnerType.FLOAT64, "Numeric", "DECIMAL(38,18)"),
        (InnerType.TIMESTAMP, "timestamp with time zone", "TIMESTAMP WITH TIME ZONE"),
        (InnerType.STRING, "character varying(20)", "VARCHAR"),
        (InnerType.STRING, "jsonb", "JSON"),
    ],
)
def test_every_inner_type_and_cast_has_a_type_in_duckdb(inner: InnerType, sql_type: str | None, expected: str) -> None:
    assert DUCKDB.typed_column(Column("a", ("/a",), inner, sql_type)).type == expected


@pytest.mark.parametrize("asked", ["", "int, b int", "int) --", "int; x", "'x'", "frobnicate", "numeric(99,2)"])
def test_what_is_no_type_never_reaches_a_statement(asked: str) -> None:
    with pytest.raises(PenstockError, match="PEN-DST-020"):
        DUCKDB.cast_type(asked)
