"""What a destination owes that is built on ``penstock.destinations.sql``, beyond its transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from penstock.destinations.contract import AnyDestination
from penstock.destinations.sql.destination import SqlDestination
from penstock.destinations.sql.marks import MARKS
from penstock.testing.destination import Staging, TransactionalContract, batch, numbered


class SqlContract(TransactionalContract):
    """For subclasses of ``SqlDestination`` with ``transactions``.

    Gives: what ``TransactionalContract`` asks for.
    Asserted: marks that an older Penstock left at the target are believed, and their table gets the columns it lacks; a
    contradiction has the code that the reference of errors explains.
    """

    contradiction: ClassVar[str] = r"PEN-DST-110.*penstock offset adopt shop"

    def test_marks_of_an_older_release_are_believed_by_their_number(
        self, destination: AnyDestination, staging: Staging
    ) -> None:
        """Their table has no column for what a batch was made of; it gets one."""
        assert isinstance(destination, SqlDestination)
        destination.write(batch(0), staging.stage(numbered([1])))
        with destination.session() as session:
            session.run_ddl([f"ALTER TABLE {destination.dialect.relation(MARKS)} DROP COLUMN origin"])
        assert [load.batch.origin for load in destination.newest_loads()] == [""]
        assert destination.write(replace(batch(0), origin="one"), staging.stage(numbered([1]))).repeated
        assert not destination.write(replace(batch(1), origin="two"), staging.stage(numbered([2]))).repeated
        assert [load.batch.origin for load in destination.loads("ledger-a", "shop")] == ["", "two"]
        assert self.ids(destination) == [1, 2]
