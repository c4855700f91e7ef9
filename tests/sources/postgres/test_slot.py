"""The slot is made while applications change tables, and every change after that can be read from it."""

from __future__ import annotations

import psycopg
import pytest

from penstock.testing.waiting import eventually
from tests.sources.postgres.rig import Rig

_WAITED_FOR = """
    SELECT DISTINCT l.transactionid::text FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE NOT l.granted AND l.locktype = 'transactionid' AND a.backend_type = 'walsender'
"""


class Application:
    """A connection with a transaction open."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.connection = psycopg.connect(rig.url)
        row = self.connection.execute("SELECT pg_current_xact_id()::text").fetchone()
        assert row is not None
        self.transaction: str = row[0]

    def is_waited_for(self) -> bool:
        return (self.transaction,) in self._rig.ask(_WAITED_FOR)

    def commit(self) -> None:
        self.connection.commit()
        self.connection.close()


@pytest.mark.parametrize("copy", [True, False])
def test_a_table_that_is_emptied_while_the_slot_is_made(rig: Rig, copy: bool) -> None:
    """PostgreSQL forgets the truncate, and would end the stream with an error at the next row of the table."""
    rig.ask("CREATE TABLE w (id int PRIMARY KEY, v text)", "INSERT INTO w VALUES (1, 'first')")
    first = Application(rig)
    with rig.child(copy=copy) as process:
        eventually(first.is_waited_for, "making the slot waits for the first transaction")
        second = Application(rig)
        rig.ask("TRUNCATE w", "INSERT INTO w VALUES (2, 'second')")
        first.commit()
        eventually(second.is_waited_for, "it waits for those that came meanwhile")
        third = Application(rig)
        third.connection.execute("INSERT INTO w VALUES (3, 'third')")
        second.commit()
        eventually(
            lambda: rig.ask("SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn IS NOT NULL"), "the slot"
        )
        third.commit()
        rig.ask("INSERT INTO w VALUES (4, 'fourth')")
        if copy:
            eventually(lambda: rig.is_mirrored("public.w") or not process.is_alive(), "the mirror")
            assert rig.is_mirrored("public.w")
        else:
            followed = "SELECT 1 FROM pg_replication_slots WHERE slot_name = 'penstock' AND active"
            eventually(lambda: rig.ask(followed) or not process.is_alive(), "the stream")
            rig.ask("INSERT INTO w VALUES (5, 'fifth')")
            eventually(
                lambda: any(b'"fifth"' in (r.data or b"") for r in rig.records()) or not process.is_alive(), "a change"
            )
        assert process.is_alive()
