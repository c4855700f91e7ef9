"""What becomes of the types that a source declares, and when a column is made wider."""

from __future__ import annotations

import pytest

from penstock.destinations.duckdb.dialect import DUCKDB
from penstock.destinations.postgres.dialect import postgres_dialect
from penstock.destinations.sql.mirror.stage.declared_types import UNKNOWN, Declared, parse_declared

POSTGRES = postgres_dialect("public")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("bigint", Declared("bigint")),
        ("numeric(12,2)", Declared("numeric", (12, 2))),
        ("character varying(40)[]", Declared("character varying", (40,), True)),
        ("timestamp(3) with time zone", Declared("timestamp with time zone", (3,))),
        ('"char"', Declared('"char"')),
        ("interval day to second(3)", Declared("interval day to second", (3,))),
        ("app.mood", UNKNOWN),
        ('"Odd Type"', UNKNOWN),
        ("geometry(Point,4326)", UNKNOWN),
        ("text; DROP TABLE users", UNKNOWN),
        ("text) --", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_a_declared_type_is_read_or_not_known(text: str, meant: Declared) -> None:
    assert parse_declared(text) == meant


@pytest.mark.parametrize(
    ("text", "postgres", "duckdb"),
    [
        ("bigint", "bigint", "BIGINT"),
        ("text", "text", "VARCHAR"),
        ("character varying(40)", "character varying(40)", "VARCHAR"),
        ("numeric", "numeric", "DECIMAL(38,18)"),
        ("numeric(5)", "numeric(5)", "DECIMAL(5,0)"),
        ("numeric(50,2)", "numeric(50,2)", None),
        ("numeric(2,5)", "numeric(2,5)", None),
        ("timestamp(3) with time zone", "timestamp(3) with time zone", "TIMESTAMP WITH TIME ZONE"),
        ("integer[]", "integer[]", None),
        ("json", "json", "JSON"),
        ("interval day to second(3)", "interval day to second(3)", None),
        ("inet", "inet", None),
        ("app.mood", None, None),
        ("app.mood[]", None, None),
        ("text; DROP TABLE users", None, None),
    ],
)
def test_engines_have_a_type_for_it_or_say_that_they_have_none(
    text: str, postgres: str | None, duckdb: str | None
) -> None:
    assert (POSTGRES.mirror_type(text), DUCKDB.mirror_type(text)) == (postgres, duckdb)


@pytest.mark.parametrize(
    ("wide", "narrow", "holds", "back"),
    [
        ("bigint", "integer", True, False),
        ("integer", "smallint", True, False),
        ("text", "bigint", True, False),
        ("text", "app.mood", True, False),
        ("text", "numeric", True, False),
        ("text", "integer[]", True, False),
        ("character varying(40)", "character varying(10)", True, False),
        ("text", "character varying(10)", True, False),
        ("character varying(10)", "integer", False, False),
        ("numeric(12,2)", "numeric(10,2)", True, False),
        ("numeric(12,2)", "numeric(12,4)", False, False),
        ("numeric(12,2)", "integer", True, False),
        ("numeric(12,2)", "bigint", False, False),
        ("numeric", "numeric(12,2)", True, False),
        ("numeric", "numeric(60,2)", True, False),
        ("numeric", "bigint", True, False),
        ("numeric", "double precision", False, False),
        ("numeric(38,18)", "numeric", False, True),
        ("double precision", "real", True, False),
        ("double precision", "integer", True, False),
        ("double precision", "bigint", False, False),
        ("double precision", "numeric(5,2)", False, False),
        ("timestamp with time zone", "timestamp(3) with time zone", True, False),
        ("timestamp without time zone", "date", True, False),
        ("boolean", "integer", False, False),
        ("date", "integer", False, False),
        ("jsonb", "json", False, False),
        ("uuid", "uuid", True, True),
    ],
)
def test_a_type_holds_another_or_not(wide: str, narrow: str, holds: bool, back: bool) -> None:
    assert (POSTGRES.holds(wide, narrow), POSTGRES.holds(narrow, wide)) == (holds, back)


def test_duckdb_does_not_take_a_time_with_a_zone_for_one_without() -> None:
    assert not DUCKDB.holds("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
    assert not DUCKDB.holds("TIMESTAMP WITH TIME ZONE", "TIMESTAMP")
    assert DUCKDB.holds("VARCHAR", "TIMESTAMP")
