"""The limit of a load into DuckDB: its own reader of JSON lines, told the types, with objects left as they are."""

from __future__ import annotations

from pathlib import Path

import duckdb

from bench.processes import TABLE


def json_types(lines: Path) -> dict[str, str]:
    """The types that DuckDB finds when it reads all the lines."""
    query = f"DESCRIBE SELECT * FROM read_json('{lines}', format='newline_delimited', sample_size=-1)"
    with duckdb.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(query).fetchall()}


def load_lines(lines: Path, types: dict[str, str], database: Path) -> None:
    columns = ", ".join(f"{name}: '{kind}'" for name, kind in types.items())
    with duckdb.connect(database) as connection:
        connection.execute(
            f"CREATE TABLE {TABLE} AS"
            f" SELECT * FROM read_json('{lines}', format='newline_delimited', columns={{{columns}}})"
        )
