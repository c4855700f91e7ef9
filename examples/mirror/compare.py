"""Compares the shop with its two mirrors, row by row, and prints what it found: ``python compare.py [seconds]``.

Mirrors follow a moment later, so it looks again until all are equal or the time (120 s) is up; then it exits with 1.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import psycopg

SHOP = os.environ.get("SHOP_URL", "postgresql://penstock@127.0.0.1:54331/postgres")
REPLICA = os.environ.get("REPLICA_URL", "postgresql://penstock@127.0.0.1:54332/postgres")
ANALYSIS = "data/analysis.duckdb"
KEYS = {"customers": ("id",), "orders": ("customer", "number"), "suppliers": ("id",)}

Rows = dict[tuple[Any, ...], dict[str, Any]]
"""The rows of a table by their key, each by the names of its columns."""
Ask = Callable[[str], tuple[Sequence[str], Sequence[Sequence[Any]]]]


def main(patience: float) -> int:
    deadline = time.monotonic() + patience
    while True:
        lines, equal = compare()
        if equal or time.monotonic() > deadline:
            print("\n".join(lines))
            return 0 if equal else 1
        time.sleep(0.5)


def compare() -> tuple[list[str], bool]:
    """A line per table and mirror, and whether every row is there with all its values."""
    shop = tables(ask_postgres(SHOP, "public"))
    lines: list[str] = []
    equal = True
    for name, ask in (("replica", ask_postgres(REPLICA, "shop")), ("analysis", ask_duckdb(ANALYSIS))):
        try:
            mirror = tables(ask)
        except (psycopg.Error, duckdb.Error) as error:
            return [f"{name}: {error}"], False
        for table, rows in shop.items():
            found = mirror[table]
            absent = sorted(columns(rows) - columns(found))
            wrong = sum(without(rows.get(key), absent) != found.get(key) for key in rows.keys() | found.keys())
            said = f"{wrong} differ" if wrong else "all equal"
            lines.append(f"{name:<9}{table:<10}{len(found):>5} rows, {said}" + "".join(f", no {a}" for a in absent))
            equal = equal and not wrong
    return lines, equal


def tables(ask: Ask) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for table, key in KEYS.items():
        names, rows = ask(table)
        as_dicts = [dict(zip(names, row, strict=True)) for row in rows]
        found[table] = {tuple(row[column] for column in key): row for row in as_dicts}
    return found


def columns(rows: Rows) -> set[str]:
    return {name for row in rows.values() for name in row}


def without(row: dict[str, Any] | None, names: Sequence[str]) -> dict[str, Any] | None:
    return None if row is None else {name: value for name, value in row.items() if name not in names}


def ask_postgres(url: str, schema: str) -> Ask:
    def ask(table: str) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        with psycopg.connect(url) as connection:
            cursor = connection.execute(f"SELECT * FROM {schema}.{table}".encode())
            return [column.name for column in cursor.description or ()], cursor.fetchall()

    return ask


def ask_duckdb(path: str) -> Ask:
    def ask(table: str) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        with duckdb.connect(path, read_only=True) as connection:
            cursor = connection.execute(f"SELECT * FROM {table}")
            return [column[0] for column in cursor.description or ()], cursor.fetchall()

    return ask


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 120.0))
