"""The replication slot: it keeps what we have not confirmed, and exports snapshots.

The source's slot is permanent. A temporary one, which ends with its connection, is created for each further snapshot:
for tables that come later, or whose copy was interrupted.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from threading import Event

import psycopg
from psycopg import pq

from penstock.errors import PenstockError
from penstock.sources.postgres.connection import TRIED_AGAIN, Connection, ServerUnavailable
from penstock.sources.postgres.copy.copy_blocks import wait_for_result
from penstock.sources.postgres.stream_position import Lsn, parse_lsn

SLOTS = 2


@dataclass(frozen=True)
class Snapshot:
    """The database at one moment. Valid as long as the connection that exported it is open and idle."""

    name: str
    lsn: Lsn
    """The snapshot has the transactions that committed before this position, and no later ones."""

    def enter(self, connection: Connection) -> None:
        """Make the transaction that has just begun use the snapshot."""
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        try:
            connection.execute(f"SET TRANSACTION SNAPSHOT '{self.name}'".encode())
        except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject) as error:
            raise ServerUnavailable("PEN-PGS-015", f"the snapshot is gone: {error}.", TRIED_AGAIN) from error


def has_slot(connection: Connection, name: str) -> bool:
    """Whether the slot exists. Raises ``PenstockError`` if it exists and cannot be ours."""
    row = connection.execute(_SLOT, (name,)).fetchone()
    if row is None:
        return False
    plugin, elsewhere, status = row
    if plugin != "pgoutput" or elsewhere is not None:
        if elsewhere is not None:
            what = f"is for the database '{elsewhere}'"
        else:
            what = "is a physical one" if plugin is None else f"speaks '{plugin}', not 'pgoutput'"
        raise PenstockError("PEN-PGS-007", f"the slot '{name}' {what}.", "Give `slot` another name.")
    if status == "lost":
        raise slot_lost_error(name, "the server has removed what it kept (max_slot_wal_keep_size)")
    return True


def slot_lost_error(name: str, why: str) -> PenstockError:
    return PenstockError(
        "PEN-PGS-006",
        f"the slot '{name}' is lost: {why}. Changes are missing, and no copy that exists can be brought up to date.",
        f"If the slot still exists, drop it: SELECT pg_drop_replication_slot('{name}'); Then set `slot` to a new name:"
        " every table is copied again and mirrors become correct.",
    )


def foreign_slot_error(name: str) -> PenstockError:
    return PenstockError(
        "PEN-PGS-020",
        f"the slot '{name}' exists but was not created by this pipeline.",
        "Set another `slot` name. If nothing uses it (for example, a deleted pipeline left it), drop it:"
        f" SELECT pg_drop_replication_slot('{name}');",
    )


def check_free_slots(connection: Connection) -> None:
    """Check that two more slots can be created: the permanent one, and one while tables are copied."""
    row = connection.execute(_ROOM).fetchone()
    room = int(str(row[0])) if row is not None else 0
    if room < SLOTS:
        raise PenstockError(
            "PEN-PGS-021",
            f"the server has room for {room} more replication slots, and {SLOTS} are needed while tables are copied.",
            "Raise max_replication_slots, or drop slots that nobody uses (SELECT * FROM pg_replication_slots).",
        )


def create_slot(walsender: Connection, name: str, stopping: Event) -> Lsn:
    """Create the permanent slot; returns the position of its first change. Waits for running transactions to end.

    Its first changes cannot be trusted. While a slot is new, the server reconstructs at every start what its catalog
    was like at that position, and misses what changed it while the slot was being created: a table that was truncated
    then cannot be found ("could not map filenode") until the catalog changes again. So the stream starts at the
    position of a later snapshot, by ``take_snapshot``.
    """
    command = f'CREATE_REPLICATION_SLOT "{name}" LOGICAL pgoutput NOEXPORT_SNAPSHOT'
    return parse_lsn(ask(walsender, command, stopping)[1])


def take_snapshot(control: Connection, walsender: Connection, name: str, stopping: Event) -> Snapshot:
    """Take a snapshot by a temporary slot; from its position on the permanent slot can be trusted.

    A catalog change makes the server refresh its view of the catalog. The snapshot then waits for the transactions that
    ran before, so it has everything that might be decoded with the old view.
    """
    with control.transaction():
        control.execute("SET TRANSACTION READ WRITE")
        control.execute("SELECT lo_unlink(lo_create(0))")  # leaves nothing behind, and needs no right
    passing = f"{name}_{secrets.token_hex(4)}"
    command = f'CREATE_REPLICATION_SLOT "{passing}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT'
    _, lsn, snapshot, _ = ask(walsender, command, stopping)
    return Snapshot(snapshot, parse_lsn(lsn))


def end_of_wal(connection: Connection) -> Lsn:
    """Where the server's write-ahead log ends now."""
    row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    return parse_lsn(str(row[0]))


def confirmed_lsn(connection: Connection, name: str) -> Lsn:
    """How far the slot is."""
    row = connection.execute(_CONFIRMED, (name,)).fetchone()
    return parse_lsn(str(row[0])) if row is not None else 0


def holder_timeout(connection: Connection) -> float:
    """Seconds after which the server has certainly dropped a dead client."""
    row = connection.execute("SELECT setting::int4 FROM pg_settings WHERE name = 'wal_sender_timeout'").fetchone()
    milliseconds = int(str(row[0])) if row is not None else 0
    return (milliseconds / 1000 or 60.0) + 10.0


def slot_holder(connection: Connection, name: str) -> str | None:
    """Who reads from the slot now, if anybody."""
    row = connection.execute(_HOLDER, (name,)).fetchone()
    return None if row is None else f"process {row[0]} of the server ({row[1]} from {row[2]})"


def slot_busy_error(name: str, holder: str) -> PenstockError:
    return PenstockError(
        "PEN-PGS-005",
        f"the slot '{name}' is in use by {holder}.",
        "A slot has one reader: stop the other pipeline, or give `slot` of this one another name.",
    )


def ask(walsender: Connection, command: str, stopping: Event) -> list[str]:
    """The one row that a replication command answers with."""
    pgconn = walsender.pgconn
    pgconn.send_query(command.encode())
    rows: list[str] = []
    while (result := wait_for_result(pgconn, stopping)) is not None:
        if result.status == pq.ExecStatus.TUPLES_OK:
            rows = [(result.get_value(0, column) or b"").decode() for column in range(result.nfields)]
        elif result.status != pq.ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(result)
    if not rows:
        raise ServerUnavailable("PEN-PGS-015", f"no answer to {command.split()[0]}.", TRIED_AGAIN)
    return rows


_SLOT = """
SELECT plugin::text, CASE WHEN database <> current_database() THEN database::text END, wal_status
FROM pg_replication_slots WHERE slot_name = %s"""

_ROOM = "SELECT current_setting('max_replication_slots')::int8 - count(*) FROM pg_replication_slots"

_CONFIRMED = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"

_HOLDER = """
SELECT s.active_pid, coalesce(nullif(a.application_name, ''), 'unnamed'), coalesce(a.client_addr::text, 'this host')
FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = %s AND s.active_pid IS NOT NULL"""
