"""Temporary tables of the shape of a selection, to be filled and read in one transaction.

Their columns are spelled out. A table that ``CREATE TABLE .. AS`` makes from a selection without rows takes rows within
the same transaction, but from a row group (122,880 rows) on, DuckDB 2.0 shows none of them to whoever reads it then.
"""

from __future__ import annotations

import duckdb

from penstock.destinations.duckdb.dialect import DUCKDB


def make_staged(connection: duckdb.DuckDBPyConnection, name: str, columns: str, table: str) -> None:
    """An empty temporary table with what ``SELECT columns FROM table`` gives; one of that name goes."""
    described = connection.execute(f"DESCRIBE SELECT {columns} FROM {table}").fetchall()
    listed = ", ".join(f"{DUCKDB.identifier(column)} {kind}" for column, kind, *_ in described)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({listed})")
