"""Which types a config may cast to, per engine: what passes the check is what the engine's dialect takes."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.bigquery.dialect import bigquery_dialect
from penstock.destinations.clickhouse.dialect import clickhouse_dialect
from penstock.destinations.duckdb.dialect import DUCKDB
from penstock.destinations.postgres.dialect import postgres_dialect
from penstock.destinations.redshift.dialect import redshift_dialect
from penstock.destinations.snowflake.dialect import snowflake_dialect
from penstock.destinations.sql.config import FloatType
from penstock.destinations.sql.dialect import Dialect
from penstock.errors import PenstockError

DIALECTS: dict[str, Dialect] = {
    "postgres": postgres_dialect("public", FloatType.NUMERIC),
    "redshift": redshift_dialect("public", FloatType.NUMERIC),
    "snowflake": snowflake_dialect("db", "public", FloatType.NUMERIC),
    "bigquery": bigquery_dialect("project", "dataset"),
    "duckdb": DUCKDB,
    "clickhouse": clickhouse_dialect("default"),
}
EVERYWHERE = [
    "bigint", "BIGINT", "integer", "int", "smallint", "numeric", "numeric(12,2)", "Numeric( 12 , 2 )", "decimal(38)",
    "double precision", "double  precision", "float", "boolean", "text", "varchar", "varchar(20)", "date",
    "character varying(20)", "timestamp", "timestamptz", "timestamp with time zone", "timestamp without time zone",
    "json", "jsonb",
]  # fmt: skip
SOME = {
    "postgres": ["text[]", "int[3]", "numeric(12,2)[]", "timestamp(3) with time zone", "public.mood", '"Mood"',
                 'public."Mood Of"', '"my schema".mood[]', "citext", "numeric(50,0)", "interval day to second", "inet",
                 "bit varying(5)", "vector(3)"],
    "redshift": ["super", "varbyte(10)", "timetz", "varchar(65535)", "hllsketch"],
    "snowflake": ["variant", "number(38,0)", "timestamp_ltz(9)", "array", "geography", "varchar(16777216)"],
    "bigquery": ["INT64", "BIGNUMERIC", "BYTES", "DATETIME", "string"],
    "duckdb": ["hugeint", "uinteger", "text[]", "int[3]", "timestamp_ns", "timestamp(9)", "uuid", "blob",
               "decimal(38,38)"],
    "clickhouse": ["Int256", "UInt8", "String", "Nullable(Int64)", "LowCardinality(String)", "FixedString(16)",
                   "LowCardinality(Nullable(String))", "Decimal(76, 10)", "DateTime64(3)", "DateTime64(3, 'UTC')",
                   "DateTime('Europe/Berlin')", "IPv6", "Date32"],
}  # fmt: skip
NOWHERE = [
    "bigintt", "", " ", "numeric(2,12)", "varchar(-1)", "varchar(0)", "numeric(0)", "decimal(12,2,1)", "bigint(",
    "numeric(12,-2)", "numeric(a)", "date(3)", "int, b int", "int) --", "int; x", "'x'", "frobnicate",
    "timestamp(99)", "text without time zone", "numeric()", "varchar(1.5)", "varchar(٣)",
]  # fmt: skip
NOT_THERE = {
    "postgres": ["int64", "Int64", "decimal(1001)", "varchar(99999999)", "datetime", "mood", "public.", '"a"b',
                 "a.b.c"],
    "redshift": ["text[]", "decimal(99,2)", "varchar(65536)", "uuid", "public.mood", "timestamp(3)"],
    "snowflake": ["text[]", "decimal(99,2)", "int8range", "timestamp(10)", '"Mood"'],
    "bigquery": ["text[]", "decimal(99,2)", "uuid", "super duper", "public.mood"],
    "duckdb": ["decimal(99,2)", "timestamp(10)", "timestamp(3) with time zone", "public.mood", "int(5)"],
    "clickhouse": ["decimal(99,2)", "Decimal(77,2)", "int64s", "string64", "Array(String)", "Nullable(Nullable(Int8))",
                   "LowCardinality(Int8)", "Nullable(LowCardinality(String))", "FixedString", "FixedString(0)",
                   "DateTime64(10)", "Int63", "Nullable(bigint)", "Decimal(2,12)"],
}  # fmt: skip
SUGGESTIONS = [
    ("postgres", "bigintt", "bigint"), ("postgres", "timestmptz", "timestamptz"), ("postgres", "int64", "bigint"),
    ("duckdb", "numerc(12,2)", "numeric"), ("bigquery", "strin", "string"), ("snowflake", "varient", "variant"),
    ("redshift", "supper", "super"), ("clickhouse", "Strng", "String"), ("clickhouse", "int65", "Int64"),
]  # fmt: skip


def accepted(engine: str, asked: str) -> bool:
    """By the check of a config and by the dialect, which must agree."""
    dialect = DIALECTS[engine]
    assert dialect.known is not None
    passes = dialect.known.problem(asked) is None
    if passes:
        dialect.cast_type(asked)
    else:
        with pytest.raises(PenstockError, match="PEN-DST-020"):
            dialect.cast_type(asked)
    return passes


@pytest.mark.parametrize("engine", DIALECTS)
def test_types_of_an_engine_pass(engine: str) -> None:
    assert [asked for asked in EVERYWHERE + SOME[engine] if not accepted(engine, asked)] == []


@pytest.mark.parametrize("engine", DIALECTS)
def test_what_is_no_type_of_an_engine_is_refused(engine: str) -> None:
    assert [asked for asked in NOWHERE + NOT_THERE[engine] if accepted(engine, asked)] == []


@pytest.mark.parametrize("engine", DIALECTS)
def test_every_type_that_is_listed_is_taken_by_the_dialect(engine: str) -> None:
    known = DIALECTS[engine].known
    assert known is not None
    assert [name for name in known.known if not accepted(engine, name)] == []


@pytest.mark.parametrize(("engine", "asked", "meant"), SUGGESTIONS)
def test_a_slip_is_answered_with_what_was_meant(engine: str, asked: str, meant: str) -> None:
    known = DIALECTS[engine].known
    assert known is not None
    problem = known.problem(asked)
    assert problem is not None
    assert problem.fix.startswith(f"Did you mean '{meant}'?")


def test_a_type_of_ones_own_is_written_with_its_schema() -> None:
    problem = DIALECTS["postgres"].known.problem("mood") if DIALECTS["postgres"].known else None
    assert problem is not None
    assert "public.mood" in problem.fix


def test_every_plain_type_that_duckdb_names_is_known() -> None:
    nested = {"array", "enum", "list", "map", "null", "row", "struct", "tuple", "type", "union", "integral"}
    with duckdb.connect() as connection:
        names = {name.lower() for (name,) in connection.execute("SELECT type_name FROM duckdb_types()").fetchall()}
    assert [name for name in sorted(names - nested) if not accepted("duckdb", name)] == []


@given(
    st.sampled_from(sorted(DIALECTS)),
    st.sampled_from(["numeric", "decimal", "varchar", "char", "timestamp", "float", "bit"]),
    st.lists(st.integers(-2, 120), min_size=0, max_size=3),
)
def test_the_check_and_the_dialect_agree_on_any_brackets(engine: str, name: str, numbers: list[int]) -> None:
    accepted(engine, f"{name}({','.join(map(str, numbers))})" if numbers else name)
