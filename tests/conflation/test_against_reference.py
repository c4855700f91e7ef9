"""Any order of arrivals, writes, failures and restarts: a unit does what the plain rules say, and breaks none."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.conflation.bundle import Bundle, Place, Unit
from penstock.conflation.unit_state import UnitState, Work
from penstock.conflation.version import Version
from tests.conflation.reference import PlainUnit
from tests.conflation.samples import KINDS

versions = st.builds(Version, st.integers(0, 1), st.integers(0, 3))


class UnitMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = UnitState(Unit("hub1"), KINDS)
        self.plain = PlainUnit(KINDS)
        self.work: Work | None = None
        self.arrived = 0
        self.given_up = 0
        self.offset = 0
        self.written: dict[str, Version] = {}
        self.all_written: list[Bundle] = []

    @rule(kind=st.sampled_from(sorted(KINDS)), version=versions, needs=versions, base=versions)
    def arrive(self, kind: str, version: Version, needs: Version, base: Version) -> None:
        is_delta, explicit = kind == "D", kind in ("CC", "L")
        bundle = Bundle("hub1", kind, version, Place(0, self.offset), needs if explicit else None,
                        base if is_delta else None)  # fmt: skip
        self.offset += 1
        self.arrived += 1
        self.state.insert(bundle)
        self.plain.insert(bundle)

    @rule()
    def begin(self) -> None:
        begun = self.state.begin_next()
        assert list(begun.bundles if begun else ()) == list(self.plain.begin())
        self.work = begun or self.work

    @precondition(lambda self: self.work is not None)
    @rule()
    def succeed(self) -> None:
        work, self.work = self.work, None
        assert work is not None
        assert all(self.plain.is_met(bundle) for bundle in work.bundles), "a dependency was violated"
        before = self.written.get(work.kind.name)
        assert before is None or work.version > before, "it went back in time"
        self.written[work.kind.name] = work.version
        self.all_written += work.bundles
        self.state.note_written()
        self.plain.succeed()

    @precondition(lambda self: self.work is not None)
    @rule(given_up=st.booleans())
    def fail(self, given_up: bool) -> None:
        work, self.work = self.work, None
        assert work is not None
        if given_up:
            self.given_up += len(work.bundles)
            self.state.note_parked("given up")
            self.plain.park()
        else:
            self.state.note_failed("failed")
            self.plain.fail()

    @rule(kind=st.sampled_from(sorted(KINDS)))
    def try_again(self, kind: str) -> None:
        self.state.try_again(kind)
        self.plain.try_again(kind)

    @invariant()
    def the_same_waits_and_the_same_was_conflated(self) -> None:
        assert _places(each.bundle for each in self.state.waiting()) == _places(self.plain.needed)
        assert _places([*self.state.conflated, *self.state.repeated]) == _places(self.plain.needless)

    @invariant()
    def everything_is_accounted_for(self) -> None:
        begun = len(self.work.bundles) if self.work else 0
        settled = len(self.all_written) + len(self.state.conflated) + len(self.state.repeated) + self.given_up
        assert self.arrived == settled + begun + len(self.state.waiting())


def _places(bundles: object) -> list[Place]:
    return sorted(bundle.place for bundle in bundles)  # type: ignore[attr-defined]


TestUnit = UnitMachine.TestCase
