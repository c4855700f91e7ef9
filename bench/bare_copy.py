"""The limit of a load into PostgreSQL: rows that are finished, in a file that COPY takes, into a table that is there.

No events are read, no types found, no tables changed, nothing is remembered about what was loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from bench.measure import seconds_of

CHUNK = 1 << 20
_TABLE = sql.Identifier("events")
_STAGED = sql.Identifier("staged")

Column = tuple[str, str]
"""A name and a type, as PostgreSQL spells it."""


@dataclass(frozen=True)
class Finished:
    """Rows as a load left them, in CSV files."""

    columns: tuple[Column, ...]
    key: str
    rows: Path
    last_of_each_key: Path
    """Only the newest row of each key: one statement may not update a row twice."""

    @property
    def names(self) -> list[sql.Identifier]:
        return [sql.Identifier(name) for name, _ in self.columns]


@contextmanager
def session(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def export(url: str, key: str, folder: Path) -> Finished:
    """Take the rows of the table ``events`` out, in the order in which they went in."""
    folder.mkdir()
    finished = Finished(columns_of(url), key, folder / "rows.csv", folder / "last_of_each_key.csv")
    newest = sql.SQL("WHERE ctid IN (SELECT max(ctid) FROM {} GROUP BY {})").format(_TABLE, sql.Identifier(key))
    for path, chosen in ((finished.rows, sql.SQL("")), (finished.last_of_each_key, newest)):
        query = sql.SQL("COPY (SELECT * FROM {} {} ORDER BY ctid) TO STDOUT (FORMAT csv)").format(_TABLE, chosen)
        with session(url) as connection, path.open("wb") as file, connection.cursor().copy(query) as copy:
            for data in copy:
                file.write(data)
    return finished


def copy_rows(url: str, finished: Finished) -> float:
    """Seconds of one COPY of all rows into an empty table."""
    with session(url) as connection:
        connection.execute(_create(finished, sql.SQL("")))
        return seconds_of(lambda: _copy(connection, _TABLE, finished.rows))


def copy_and_merge(url: str, finished: Finished) -> float:
    """Seconds of one COPY into a temporary table and one INSERT that updates what is there, into an empty table."""
    key = sql.Identifier(finished.key)
    names = sql.SQL(", ").join(finished.names)
    updates = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in finished.names if name != key)
    merge = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO UPDATE SET {}").format(
        _TABLE, names, names, _STAGED, key, updates
    )

    def work() -> None:
        with connection.transaction():
            connection.execute(sql.SQL("CREATE TEMPORARY TABLE {} (LIKE {})").format(_STAGED, _TABLE))
            _copy(connection, _STAGED, finished.last_of_each_key)
            connection.execute(merge)

    with session(url) as connection:
        connection.execute(_create(finished, sql.SQL(", PRIMARY KEY ({})").format(key)))
        return seconds_of(work)


def columns_of(url: str) -> tuple[Column, ...]:
    query = (
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'events'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )
    with session(url) as connection:
        return tuple((name, kind) for name, kind in connection.execute(query))


def _create(finished: Finished, key: sql.Composable) -> sql.Composed:
    columns = [sql.SQL("{} " + kind).format(sql.Identifier(name)) for name, kind in finished.columns]
    return sql.SQL("CREATE TABLE {} ({}{})").format(_TABLE, sql.SQL(", ").join(columns), key)


def _copy(connection: psycopg.Connection, table: sql.Identifier, rows: Path) -> None:
    query = sql.SQL("COPY {} FROM STDIN (FORMAT csv)").format(table)
    with rows.open("rb") as file, connection.cursor().copy(query) as copy:
        while data := file.read(CHUNK):
            copy.write(data)
