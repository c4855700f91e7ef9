"""The publication that names our tables: created when missing, extended as tables come.

It lists tables one by one even where our role could publish "all tables". PostgreSQL refuses updates and deletes of a
published table whose rows have no identity; a publication of all tables would do that to every such table of the
database, also to those that nobody wants to follow, and to those created tomorrow.

An existing publication is used as it is, whatever it lists and filters; we only add selected tables that it lacks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import psycopg

from penstock.errors import PenstockError
from penstock.sources.postgres.catalog.table_catalog import Table, quoted, tables
from penstock.sources.postgres.connection import Connection, ServerUnavailable
from penstock.sources.postgres.server_checks import check_identities, check_tables, listing

_log = logging.getLogger("penstock.postgres")


class PublicationListener(Protocol):
    """Is told about tables on their way into the publication."""

    def note_missed_changes(self, fresh: Sequence[Table]) -> None:
        """These tables are about to be published: their changes until now were missed."""

    def warn_not_followed(self, table: Table, why: str) -> None:
        """This table cannot be followed yet."""


def publish_all(connection: Connection, name: str, patterns: Sequence[str], hearer: PublicationListener) -> list[Table]:
    """Publish all selected tables, before anything is followed. Raises ``PenstockError`` for what a person must fix
    first."""
    found = tables(connection, name, patterns)
    check_tables(found, patterns)
    check_identities(found)
    fresh = [table for table in found if not table.published]
    hearer.note_missed_changes(fresh)
    if _exists(connection, name):
        check_publication(connection, name)
        _add(connection, name, fresh)
    else:
        _create(connection, name, fresh)
    return tables(connection, name, patterns)


def publish_new(connection: Connection, name: str, patterns: Sequence[str], hearer: PublicationListener) -> list[Table]:
    """The same while others are followed already; returns the published tables. A table that cannot be published yet
    is left for the next time. Raises ``PenstockError`` if the publication leaves out kinds of changes by now."""
    check_publication(connection, name)
    found = tables(connection, name, patterns)
    fresh = [table for table in found if not table.published]
    hearer.note_missed_changes(fresh)
    able = []
    for table in fresh:
        if table.has_identity and table.readable:
            able.append(table)
        else:
            hearer.warn_not_followed(table, _lack(table))
    if able and not _exists(connection, name):
        _create(connection, name, able)
    else:
        for table in able:
            try:
                _add(connection, name, [table])
            except PenstockError as error:
                hearer.warn_not_followed(table, str(error))
    if able:
        found = tables(connection, name, patterns)
    for table in found:
        if table.published and not table.has_identity:
            hearer.warn_not_followed(table, _lack(table))
    return [table for table in found if table.published and table.has_identity]


def _lack(table: Table) -> str:
    if not table.has_identity:
        return (
            "its rows have no identity, or those of a partition have another one; add a primary key that is not"
            f" deferrable, or ALTER TABLE {table.quoted} REPLICA IDENTITY FULL, and so for its partitions"
        )
    return "our role may not read it"


def _exists(connection: Connection, name: str) -> bool:
    return connection.execute("SELECT FROM pg_publication WHERE pubname = %s", (name,)).fetchone() is not None


def check_publication(connection: Connection, name: str) -> None:
    """Check that the publication, if it exists, covers all kinds of changes."""
    row = connection.execute(
        "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication WHERE pubname = %s", (name,)
    ).fetchone()
    if row is not None and not row[0]:
        raise PenstockError(
            "PEN-PGS-009",
            f"the publication '{name}' leaves out some kinds of changes.",
            f"ALTER PUBLICATION {quoted(name)} SET (publish = 'insert, update, delete, truncate');",
        )


def _create(connection: Connection, name: str, found: Sequence[Table]) -> None:
    how = f"FOR TABLE {_names(found)} WITH (publish_via_partition_root = true)"
    _run(connection, f"CREATE PUBLICATION {quoted(name)} {how}", found)
    _log.info("made the publication %s of %s", name, listing(found))


def _add(connection: Connection, name: str, fresh: Sequence[Table]) -> None:
    if fresh:
        _run(connection, f"ALTER PUBLICATION {quoted(name)} ADD TABLE {_names(fresh)}", fresh)
        _log.info("added %s to the publication %s", listing(fresh), name)


def _names(found: Sequence[Table]) -> str:
    return ", ".join(table.quoted for table in found)


def _run(connection: Connection, statement: str, about: Sequence[Table]) -> None:
    try:
        connection.execute(statement.encode())
    except psycopg.errors.LockNotAvailable as error:
        raise ServerUnavailable(
            "PEN-PGS-019",
            f"{listing(about)} cannot be published now: {error}.",
            "It is tried again; if it lasts, fix it there.",
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        foreign = [table for table in about if not table.owned] or list(about)
        raise PenstockError(
            "PEN-PGS-009",
            f"our role may not put {listing(foreign)} into a publication: {error}.",
            f"Have it done by the tables' owner: {statement};",
        ) from error
