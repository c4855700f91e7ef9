"""A destination that conflates what waits, against a reference of one dictionary: whatever comes in any order, whatever
dies in between, and also if an older copy of the target is put back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock import faults
from penstock.destinations.contract import TargetPosition
from penstock.engine.history.target_position import return_to_position
from tests.engine.conflating import FIRST, ROUTE, SECOND, Fleet, group_of

POINTS = (
    None,
    "route.range_fixed",
    "route.destination_done",
    "route.before_ledger_commit",
    "route.ledger_committed",
    "postponed.begun",
    "postponed.destination_done",
    "postponed.before_ledger_commit",
)

points = st.sampled_from(POINTS)
bundles = st.lists(
    st.tuples(st.sampled_from(["h", "i", "j"]), st.sampled_from([FIRST, SECOND]), st.integers(0, 9), st.integers(0, 9)),
    min_size=1,
    max_size=8,
)


class ConflatingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-conflating-")
        self.fleet = Fleet(Path(self.folder.name))
        self.sent: list[tuple[str, str, int, int]] = []
        self.older: tuple[dict[str, tuple[int, int]], int, int] = ({}, 0, 0)
        self.seen: dict[str, tuple[int, int]] = {}

    def teardown(self) -> None:
        self.fleet.state.away = False
        for _ in range(3):
            self.fleet.deliver()
            self.fleet.retry()
        self.everything_has_come()
        self.fleet.opened.ledger.close()
        self.folder.cleanup()

    # What happens

    @rule(come=bundles)
    def send(self, come: list[tuple[str, str, int, int]]) -> None:
        self.sent += come
        self.fleet.send(*come)

    @rule(most=st.integers(1, 12), point=points)
    def deliver(self, most: int, point: str | None) -> None:
        with self.dying(point):
            self.fleet.deliver(most)

    @rule(point=points)
    def retry(self, point: str | None) -> None:
        with self.dying(point):
            self.fleet.retry()

    @rule(away=st.booleans())
    def target_goes_or_comes_back(self, away: bool) -> None:
        self.fleet.state.away = away

    @rule()
    def copy_the_target(self) -> None:
        self.older = dict(self.fleet.state.newest), self.fleet.hold, self.fleet.committed

    @rule()
    def put_the_older_target_back(self) -> None:
        fleet = self.fleet
        state = fleet.state
        newest, hold, committed = self.older
        if fleet.hold <= hold and fleet.committed <= committed:
            # By its position such a copy cannot be told from the target itself, which waits for the same.
            return
        state.newest, state.says = dict(newest), {0: TargetPosition(hold, committed)}
        state.written.clear()
        self.seen = dict(state.newest)
        return_to_position(fleet.opened.ledger, fleet.opened.log, fleet.opened.plan(ROUTE), state)
        assert fleet.hold == fleet.committed == hold

    @contextmanager
    def dying(self, point: str | None) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(faults, "_armed", faults.parse(f"{point}=raise" if point else ""))
            with suppress(faults.InjectedFault):
                yield

    # What must hold

    @invariant()
    def nothing_goes_back_in_time_or_is_written_twice(self) -> None:
        newest = self.fleet.state.newest
        assert all(newest[group] >= known for group, known in self.seen.items())
        self.seen = dict(newest)
        assert max(self.fleet.state.written.values(), default=1) == 1

    @invariant()
    def nothing_is_written_before_what_it_needs(self) -> None:
        newest = self.fleet.state.newest
        for group, (_, at) in newest.items():
            source, kind, _, needs = self.sent[at]
            assert group == group_of(source, kind)
            assert kind == FIRST or newest[group_of(source, FIRST)][0] >= needs

    @invariant()
    def the_books_say_what_waits_and_where(self) -> None:
        ledger, totals = self.fleet.opened.ledger, self.fleet.totals
        assert totals.adds_up
        groups = ledger.postponed(ROUTE)
        offsets = [offset for group in groups for offset in group.places["offset"].to_pylist()]
        assert (totals.waiting, ledger.account(ROUTE).postponed) == (len(offsets), len(offsets))
        position = ledger.offsets(ROUTE)[0]
        assert position.hold == min([position.committed, *offsets])
        # But for a retry that was begun, which came before it, there is one of each name.
        left = [group.group for group in groups if group.number is None]
        assert len(left) == len(set(left))

    def everything_has_come(self) -> None:
        """Of each source and kind the newest is there, or waits for what has not come."""
        newest = {key: version for key, (version, _) in self.fleet.state.newest.items()}
        waits = {group.group: int(group.about) for group in self.fleet.opened.ledger.postponed(ROUTE)}
        best: dict[str, int] = {}
        for source, kind, version, _ in self.sent:
            group = group_of(source, kind)
            best[group] = max(version, best.get(group, -1))
        for group, version in best.items():
            source, _, kind = group.partition("\x1f")
            # Of equal versions the first is the one that counts.
            needs = next(each[3] for each in self.sent if (group_of(each[0], each[1]), each[2]) == (group, version))
            ready = kind == FIRST or best.get(group_of(source, FIRST), -1) >= needs
            if ready:
                assert newest.get(group) == version
                assert group not in waits
            else:
                assert newest.get(group) == version or waits.get(group) == version


TestConflating = ConflatingMachine.TestCase
TestConflating.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
