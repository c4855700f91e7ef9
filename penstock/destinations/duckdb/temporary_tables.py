"""Temporary tables with the columns of a SELECT, to be filled and read in one transaction.

Their columns are spelled out. A table that ``CREATE TABLE .. AS`` makes from an empty SELECT accepts rows within the
same transaction, but from a row group (122,880 rows) on, DuckDB 2.0 shows none of them to a reader.
"""

from __future__ import annotations

import duckdb

from penstock.destinations.duckdb.dialect import DUCKDB


def create_staging_table(connection: duckdb.DuckDBPyConnection, name: str, columns: str, table: str) -> None:
    """Create an empty temporary table with the columns of ``SELECT columns FROM table``; replaces one of that name."""
    described = connection.execute(f"DESCRIBE SELECT {columns} FROM {table}").fetchall()
    listed = ", ".join(f"{DUCKDB.identifier(column)} {kind}" for column, kind, *_ in described)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({listed})")
