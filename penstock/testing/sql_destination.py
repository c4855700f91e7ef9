"""What a destination owes that is built on ``penstock.destinations.sql``, beyond its transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from penstock.destinations.contract import AnyDestination
from penstock.destinations.sql.destination import SqlDestination
from penstock.destinations.sql.marks import MARKS
from penstock.errors import ContradictionError
from penstock.testing.destination import RepeatableContract, Staging, TransactionalContract, batch, numbered


class MarkedContract(RepeatableContract):
    """For destinations with ``marks``.

    Gives: what ``RepeatableContract`` asks for.
    Asserted: a target that has lost the batch which another one follows gets nothing of that one, and says so; a target
    that has it, or a newer one, takes it.
    """

    def test_a_batch_is_not_written_to_a_target_that_has_lost_the_one_before_it(
        self, destination: AnyDestination, staging: Staging
    ) -> None:
        assert destination.capabilities.marks
        with pytest.raises(ContradictionError, match="PEN-DST-113"):
            destination.write(replace(batch(1), follows=1), staging.stage(numbered([1])))
        destination.write(batch(3), staging.stage(numbered([3])))
        for other in (batch(9, route="other"), batch(9, scope="ledger-b")):
            destination.write(other, staging.stage(numbered([9])))
        for follows, number in [(3, 4), (2, 5), (5, 6)]:
            destination.write(replace(batch(number), follows=follows), staging.stage(numbered([number])))
        with pytest.raises(ContradictionError, match="up to 6 only, and batch 8 was delivered"):
            destination.write(replace(batch(9), follows=8), staging.stage(numbered([10])))
        assert sorted(set(self.ids(destination))) == [3, 4, 5, 6, 9]


class SqlContract(MarkedContract, TransactionalContract):
    """For subclasses of ``SqlDestination`` with ``transactions``.

    Gives: what ``TransactionalContract`` asks for.
    Asserted: what ``MarkedContract`` asserts; marks that an older Penstock left at the target are believed, and their
    table gets the columns it lacks; a contradiction has the code that the reference of errors explains.
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
