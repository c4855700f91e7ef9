"""The table of what goes into a column of another type, run by DuckDB itself."""

from collections.abc import Iterator

import duckdb
import pytest

from penstock.destinations.duckdb.conversion import convert

BIGINT, DOUBLE, BOOLEAN, TEXT, TIME = "BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR", "TIMESTAMP WITH TIME ZONE"
LOST = object()


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute("SET TimeZone = 'UTC'")
        yield opened


def result(
    connection: duckdb.DuckDBPyConnection, value: object, source: str, target: str, asked: bool = False
) -> object:
    conversion = convert('"v"', source, target, asked)
    rows = f"(SELECT CAST(? AS {source}) AS v)"
    query = f"SELECT CAST({conversion.value} AS VARCHAR), {conversion.lost or 'FALSE'} FROM {rows}"
    ((converted, lost),) = connection.execute(query, [value]).fetchall()
    assert not (lost and converted is not None)
    return LOST if lost else converted


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        ("7", TEXT, BIGINT, "7"),
        ("-12", TEXT, BIGINT, "-12"),
        ("007", TEXT, BIGINT, LOST),
        (" 7", TEXT, BIGINT, LOST),
        ("7.5", TEXT, BIGINT, LOST),
        ("7.0", TEXT, BIGINT, "7"),
        ("0x10", TEXT, BIGINT, LOST),
        ("1_000", TEXT, BIGINT, LOST),
        ("1e3", TEXT, BIGINT, LOST),
        ("", TEXT, BIGINT, LOST),
        ("99999999999999999999", TEXT, BIGINT, LOST),
        ("99999999999999999999", TEXT, "HUGEINT", "99999999999999999999"),
        ("x", TEXT, BIGINT, LOST),
        ("1.50", TEXT, DOUBLE, "1.5"),
        ("7", TEXT, DOUBLE, "7.0"),
        ("100", TEXT, DOUBLE, "100.0"),
        ("0.1000000000000000055", TEXT, DOUBLE, LOST),
        ("nan", TEXT, DOUBLE, LOST),
        ("inf", TEXT, DOUBLE, LOST),
        ("1.5", TEXT, "DECIMAL(12,2)", "1.50"),
        ("1.234", TEXT, "DECIMAL(12,2)", LOST),
        ("true", TEXT, BOOLEAN, "true"),
        ("yes", TEXT, BOOLEAN, LOST),
        ("2024-05-01T10:00:00.5Z", TEXT, TIME, "2024-05-01 10:00:00.5+00"),
        ("2024-05-01T10:00:00+02:00", TEXT, TIME, "2024-05-01 08:00:00+00"),
        ("2024-05-01T10:00:00", TEXT, TIME, "2024-05-01 10:00:00+00"),
        ("2024-13-01T10:00:00Z", TEXT, TIME, LOST),
        ("2024-05-01T10:00:00.1234567Z", TEXT, TIME, LOST),
        ("yesterday", TEXT, TIME, LOST),
        ("2024-05-01", TEXT, "DATE", "2024-05-01"),
        ("2024-05-1", TEXT, "DATE", LOST),
        (9.0, DOUBLE, BIGINT, "9"),
        (9.5, DOUBLE, BIGINT, LOST),
        (1e300, DOUBLE, BIGINT, LOST),
        (1.0, DOUBLE, BOOLEAN, "true"),
        (1.25, DOUBLE, "DECIMAL(12,2)", "1.25"),
        (1.234, DOUBLE, "DECIMAL(12,2)", LOST),
        (1e25, DOUBLE, "DECIMAL(38,18)", LOST),
        (1.5, DOUBLE, TEXT, "1.5"),
        (1.5, DOUBLE, TIME, LOST),
        (7, BIGINT, DOUBLE, "7.0"),
        (2**53 + 1, BIGINT, DOUBLE, LOST),
        (2**63 - 1, BIGINT, DOUBLE, LOST),
        (1, BIGINT, BOOLEAN, "true"),
        (0, BIGINT, BOOLEAN, "false"),
        (2, BIGINT, BOOLEAN, LOST),
        (70_000, BIGINT, "SMALLINT", LOST),
        (7, BIGINT, TEXT, "7"),
        (7, BIGINT, TIME, LOST),
        (True, BOOLEAN, BIGINT, "1"),
        (True, BOOLEAN, DOUBLE, "1.0"),
        (True, BOOLEAN, TEXT, "true"),
        (False, BOOLEAN, TIME, LOST),
        ("2024-05-01T10:00:00Z", TIME, TEXT, "2024-05-01T10:00:00.000000Z"),
        ("2024-05-01T10:00:00Z", TIME, "DATE", LOST),
        ("2024-05-01T10:00:00Z", TIME, BIGINT, LOST),
    ],
)
def test_a_value_goes_in_if_it_could_be_had_back(
    connection: duckdb.DuckDBPyConnection, value: object, source: str, target: str, expected: object
) -> None:
    assert result(connection, value, source, target) == expected


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (1.236, DOUBLE, "DECIMAL(12,2)", "1.24"),
        ("12.5", TEXT, "DECIMAL(12,2)", "12.50"),
        ("twelve", TEXT, "DECIMAL(12,2)", LOST),
        (1e25, DOUBLE, "DECIMAL(12,2)", LOST),
    ],
)
def test_a_type_that_was_asked_for_may_round(
    connection: duckdb.DuckDBPyConnection, value: object, source: str, target: str, expected: object
) -> None:
    assert result(connection, value, source, target, asked=True) == expected


@pytest.mark.parametrize("source", [BIGINT, DOUBLE, BOOLEAN, TEXT, TIME])
@pytest.mark.parametrize("target", [BIGINT, DOUBLE, BOOLEAN, TEXT, TIME, "DATE", "UUID", "BLOB", "INTEGER[]"])
@pytest.mark.parametrize("asked", [True, False])
def test_null_stays_null_and_is_never_lost(
    connection: duckdb.DuckDBPyConnection, source: str, target: str, asked: bool
) -> None:
    assert result(connection, None, source, target, asked) is None
