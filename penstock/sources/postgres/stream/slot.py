"""The replication slot: it keeps what we have not confirmed, and gives a snapshot to begin with.

The slot of the source lasts. A second one, gone with its connection, is made only to have one more snapshot: for tables
that come later, or whose copy was cut off.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from threading import Event

import psycopg
from psycopg import pq

from penstock.errors import PenstockError
from penstock.sources.postgres.connection import TRIED_AGAIN, Connection, ServerAway
from penstock.sources.postgres.copy.copy_blocks import result_of
from penstock.sources.postgres.stream_position import Lsn, lsn_text, parse_lsn

SLOTS = 2


@dataclass(frozen=True)
class Snapshot:
    """The database at one moment. It can be used as long as the connection that made it is open and does nothing."""

    name: str
    lsn: Lsn
    """Transactions that committed before this place are in it, later ones are not."""

    def enter(self, connection: Connection) -> None:
        """Have the transaction that has just begun see the database as of the snapshot."""
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        try:
            connection.execute(f"SET TRANSACTION SNAPSHOT '{self.name}'".encode())
        except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject) as error:
            raise ServerAway("PEN-PGS-015", f"the snapshot is gone: {error}.", TRIED_AGAIN) from error


def has_slot(connection: Connection, name: str) -> bool:
    """Whether the slot is there. Raises ``PenstockError`` if it is, and cannot be ours."""
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
        raise lost(name, "the server has removed what it kept (max_slot_wal_keep_size)")
    return True


def lost(name: str, why: str) -> PenstockError:
    return PenstockError(
        "PEN-PGS-006",
        f"the slot '{name}' is lost: {why}. Changes are missing, and no copy that exists can be brought up to date.",
        f"SELECT pg_drop_replication_slot('{name}'); if it is still there, then give `slot` another name: every table"
        " is copied anew, and mirrors are right again.",
    )


def not_ours(name: str) -> PenstockError:
    return PenstockError(
        "PEN-PGS-020",
        f"the slot '{name}' is there already, and not by this pipeline: whoever reads from it would miss what we take.",
        f"Give `slot` another name. If nobody reads from it (a pipeline whose data was removed did, say), then:"
        f" SELECT pg_drop_replication_slot('{name}');",
    )


def check_room(connection: Connection) -> None:
    """That two more slots can be made: the one that lasts, and one while tables are copied."""
    row = connection.execute(_ROOM).fetchone()
    room = int(str(row[0])) if row is not None else 0
    if room < SLOTS:
        raise PenstockError(
            "PEN-PGS-021",
            f"the server has room for {room} more replication slots, and {SLOTS} are needed while tables are copied.",
            "Raise max_replication_slots, or drop slots that nobody uses (SELECT * FROM pg_replication_slots).",
        )


def create_slot(walsender: Connection, name: str, stopping: Event) -> Lsn:
    """Make the slot that lasts; the place from which it has changes. Waits for transactions under way to end.

    What it gives there is not to be trusted. As long as a slot is new, the server works out anew at every start what
    its catalog was like at that place, and misses what changed it while the slot was being made: a table that was
    truncated then cannot be found ("could not map filenode"), whoever writes to it, until the catalog changes again. So
    the stream is taken from the place of a later snapshot, by ``take_snapshot``.
    """
    command = f'CREATE_REPLICATION_SLOT "{name}" LOGICAL pgoutput NOEXPORT_SNAPSHOT'
    return parse_lsn(_ask(walsender, command, stopping)[1])


def take_snapshot(control: Connection, walsender: Connection, name: str, stopping: Event) -> Snapshot:
    """A snapshot, by a slot that ends with the connection; from its place on the lasting slot can be trusted.

    A change of the catalog makes the server see it as it is; the snapshot then waits for the transactions that were
    under way before, so all that might be read with what was seen until then is in the snapshot.
    """
    with control.transaction():
        control.execute("SET TRANSACTION READ WRITE")
        control.execute("SELECT lo_unlink(lo_create(0))")  # leaves nothing behind, and needs no right
    passing = f"{name}_{secrets.token_hex(4)}"
    command = f'CREATE_REPLICATION_SLOT "{passing}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT'
    _, lsn, snapshot, _ = _ask(walsender, command, stopping)
    return Snapshot(snapshot, parse_lsn(lsn))


def system_identifier(walsender: Connection, stopping: Event) -> str:
    """What tells this database cluster from every other."""
    return _ask(walsender, "IDENTIFY_SYSTEM", stopping)[0]


def check_reachable(connection: Connection, taken: Lsn) -> None:
    """Refuse a server whose write-ahead log ends before what the log has."""
    end = end_of_wal(connection)
    if end < taken:
        raise another_server(f"it is at {lsn_text(end)}, but the log has changes up to {lsn_text(taken)}")


def another_server(why: str) -> PenstockError:
    return PenstockError(
        "PEN-PGS-013",
        f"this is not the server that the log's records come from, or it was put back to an earlier state: {why}.",
        "Point `url` to the right server, or give `slot` another name to copy every table anew.",
    )


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
    """Seconds after which the server surely has let go of a client that died."""
    row = connection.execute("SELECT setting::int4 FROM pg_settings WHERE name = 'wal_sender_timeout'").fetchone()
    milliseconds = int(str(row[0])) if row is not None else 0
    return (milliseconds / 1000 or 60.0) + 10.0


def slot_holder(connection: Connection, name: str) -> str | None:
    """Who reads from the slot now."""
    row = connection.execute(_HOLDER, (name,)).fetchone()
    return None if row is None else f"process {row[0]} of the server ({row[1]} from {row[2]})"


def in_use(name: str, holder: str) -> PenstockError:
    return PenstockError(
        "PEN-PGS-005",
        f"the slot '{name}' is in use by {holder}.",
        "A slot has one reader: stop the other pipeline, or give `slot` of this one another name.",
    )


def _ask(walsender: Connection, command: str, stopping: Event) -> list[str]:
    """The one row that a replication command answers with."""
    pgconn = walsender.pgconn
    pgconn.send_query(command.encode())
    rows: list[str] = []
    while (result := result_of(pgconn, stopping)) is not None:
        if result.status == pq.ExecStatus.TUPLES_OK:
            rows = [(result.get_value(0, column) or b"").decode() for column in range(result.nfields)]
        elif result.status != pq.ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(result)
    if not rows:
        raise ServerAway("PEN-PGS-015", f"no answer to {command.split()[0]}.", TRIED_AGAIN)
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
