"""Which batches a DuckDB file has already. A mark is written in its batch's transaction, so the two never differ."""

from __future__ import annotations

import duckdb

from penstock.destinations.contract import Batch

TABLE = "_penstock_batches"
KEPT = 1_000
"""Marks per route: a batch older than that is long settled in the ledger and never comes again."""


def has_batch(connection: duckdb.DuckDBPyConnection, batch: Batch) -> bool:
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {TABLE} (scope VARCHAR, route VARCHAR, batch BIGINT, committed_at TIMESTAMPTZ)"
    )
    found = connection.execute(
        f"SELECT 1 FROM {TABLE} WHERE scope = ? AND route = ? AND batch = ?", [batch.scope, batch.route, batch.number]
    ).fetchall()
    return bool(found)


def mark_batch(connection: duckdb.DuckDBPyConnection, batch: Batch) -> None:
    connection.execute(
        f"INSERT INTO {TABLE} VALUES (?, ?, ?, current_timestamp)", [batch.scope, batch.route, batch.number]
    )
    connection.execute(
        f"DELETE FROM {TABLE} WHERE scope = ? AND route = ? AND batch <= ?",
        [batch.scope, batch.route, batch.number - KEPT],
    )
