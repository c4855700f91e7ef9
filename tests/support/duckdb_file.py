"""A DuckDB file, opened by a test to look at it or to change it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

import duckdb

_numbers = count()


@contextmanager
def open_file(path: Path | str, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to the file, and to nothing else; times are in UTC. Attaching it to an instance that is there takes
    3 ms, an instance of its own 40, and tests look a thousand times."""
    connection = _instance().cursor()
    name = f"file_{next(_numbers)}"
    place = str(path).replace("'", "''")
    connection.execute(f"ATTACH '{place}' AS {name} (READ_ONLY {read_only})")
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"USE {name}")
        yield connection
    finally:
        connection.execute("USE memory")
        connection.execute(f"DETACH {name}")
        connection.close()


@cache
def _instance() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()
