import pytest

from penstock.destinations.duckdb.dialect import DUCKDB
from penstock.destinations.sql.operations import AddColumn, CreateTable, Operation, TypedColumn, patch
from penstock.errors import PenstockError
from penstock.flatten.column import Column
from penstock.flatten.types import InnerType

A, B = TypedColumn("a", "BIGINT"), TypedColumn("b", "VARCHAR")


@pytest.mark.parametrize(
    ("existing", "operations"),
    [
        (None, [CreateTable("t", (A, B))]),
        ({"a": "BIGINT"}, [AddColumn("t", B)]),
        ({"A": "VARCHAR", "extra": "DATE"}, [AddColumn("t", B)]),
        ({"b": "VARCHAR", "a": "BIGINT"}, []),
        ({}, [AddColumn("t", A), AddColumn("t", B)]),
    ],
)
def test_a_plan_adds_what_is_missing_and_nothing_else(
    existing: dict[str, str] | None, operations: list[Operation]
) -> None:
    assert patch("t", [A, B], existing) == operations


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
    assert DUCKDB.column(Column("a", "/a", inner, sql_type)).type == expected


@pytest.mark.parametrize("asked", ["", "int, b int", "int) --", "int; x", "'x'", "frobnicate", "numeric(99,2)"])
def test_what_is_no_type_never_reaches_a_statement(asked: str) -> None:
    with pytest.raises(PenstockError, match="PEN-DST-020"):
        DUCKDB.cast_type(asked)
