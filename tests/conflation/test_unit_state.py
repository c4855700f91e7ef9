"""What is written of a unit, in which order, what waits and what is conflated away: the rules, case by case."""

from __future__ import annotations

import pytest

from penstock.conflation.bundle import Place, Processed, Unit
from penstock.conflation.kinds import Dependency, Kind, Kinds, Match, Sync
from penstock.conflation.unit_state import UnitState
from penstock.conflation.version import Version
from tests.conflation.samples import KINDS, Story, bundle

CASES: list[tuple[str, str, str, str, str]] = [
    # the name; what happens; what is written, in its order; what waits; what is conflated away
    ("one bundle", "+A0.1 !", "A0.1", "", ""),
    ("only the newest of three", "+A0.1 +A0.2 +A0.3 !", "A0.3", "", "A0.1 A0.2"),
    ("the newest came first", "+A0.3 +A0.1 +A0.2 !", "A0.3", "", "A0.1 A0.2"),
    ("the newest came in the middle", "+A0.1 +A0.3 +A0.2 !", "A0.3", "", "A0.1 A0.2"),
    ("two come during a write", "+A0.3 > +A0.4 +A0.5 . !", "A0.3 A0.5", "", "A0.4"),
    ("nothing else is begun during a write", "+A0.1 +C0.1 > > .", "A0.1", "C0.1", ""),
    ("an older one comes during a write", "+A0.3 > +A0.2 . !", "A0.3", "", "A0.2"),
    ("an equal one comes during a write", "+A0.3 > +A0.3 . !", "A0.3", "", "A0.3"),
    ("an equal one waits already", "+A0.3 +A0.3 !", "A0.3", "", "A0.3"),
    ("an equal one was written", "+A0.5 ! +A0.5 !", "A0.5", "", "A0.5"),
    ("an older one after a newer one was written", "+A0.5 ! +A0.4 !", "A0.5", "", "A0.4"),
    ("a newer one after an older one was written", "+A0.5 ! +A0.6 !", "A0.5 A0.6", "", ""),
    ("numbers are compared as numbers", "+A0.9 +A0.10 !", "A0.10", "", "A0.9"),
    ("incarnations, too", "+A9.0 +A10.0 !", "A10.0", "", "A9.0"),
    ("a source that was started again", "+A0.5 ! +A1.0 !", "A0.5 A1.0", "", ""),
    ("what it sent before it was started again", "+A1.0 ! +A0.9 !", "A1.0", "", "A0.9"),
    ("a late one of before, while the new one waits", "+A1.0 +A0.9 !", "A1.0", "", "A0.9"),
    # priorities
    ("by priority", "+C0.1 +A0.1 !", "A0.1 C0.1", "", ""),
    ("by priority, whatever came first", "+H0.1 +L0.1@0.1 +C0.1 +A0.1 !", "A0.1 C0.1 L0.1 H0.1", "", ""),
    ("a more urgent one comes during a write", "+C0.1 +H0.1 > +A0.1 . !", "C0.1 A0.1 H0.1", "", ""),
    # exact dependencies
    ("the dependency is there", "+C0.2 ! +CC0.1@0.2 !", "C0.2 CC0.1", "", ""),
    ("the dependency comes in the same batch", "+CC0.1@0.2 +C0.2 !", "C0.2 CC0.1", "", ""),
    ("the dependency is missing", "+CC0.1@0.2 !", "", "CC0.1", ""),
    ("an older version is not the dependency", "+CC0.1@0.2 +C0.1 !", "C0.1", "CC0.1", ""),
    ("the dependency follows", "+CC0.1@0.2 ! +C0.1 ! +C0.2 !", "C0.1 C0.2 CC0.1", "", ""),
    ("a newer version is not the dependency either", "+C0.3 ! +CC0.1@0.2 !", "C0.3", "CC0.1", ""),
    ("the dependency was conflated away", "+C0.2 +C0.3 +CC0.1@0.2 !", "C0.3", "CC0.1", "C0.2"),
    ("what waits is replaced by one whose dependency is met", "+C0.3 +CC0.1@0.2 ! +CC0.2@0.3 !", "C0.3 CC0.2", "",
     "CC0.1"),
    ("what waits is replaced by one that waits", "+CC0.1@0.1 +CC0.2@0.2 !", "", "CC0.2", "CC0.1"),
    ("what waits does not keep others waiting", "+CC0.1@0.1 +CC0.2@0.2 ! +A0.1 !", "A0.1", "CC0.2", "CC0.1"),
    ("an older one does not replace what waits", "+CC0.2@0.2 +CC0.1@0.1 +C0.1 !", "C0.1", "CC0.2", "CC0.1"),
    ("the dependency is being written", "+C0.2 > +CC0.1@0.2 > . !", "C0.2 CC0.1", "", ""),
    ("the dependency is of another incarnation", "+C0.2 ! +CC1.0@1.2 !", "C0.2", "CC1.0", ""),
    ("the dependency of the new incarnation comes", "+C0.2 ! +CC1.0@1.2 +C1.2 !", "C0.2 C1.2 CC1.0", "", ""),
    ("one of before waits for ever, until it is replaced", "+CC0.1@0.2 +C1.0 ! +CC1.0@1.0 !", "C1.0 CC1.0", "",
     "CC0.1"),
    ("a chain of three", "+D0.1^0.1 +CC0.1@0.1 +C0.1 !", "C0.1 CC0.1 D0.1", "", ""),
    # at least
    ("at least: equal", "+C0.2 +L0.1@0.2 !", "C0.2 L0.1", "", ""),
    ("at least: newer", "+C0.3 +L0.1@0.2 !", "C0.3 L0.1", "", ""),
    ("at least: older", "+C0.1 +L0.1@0.2 !", "C0.1", "L0.1", ""),
    ("at least: none", "+L0.1@0.2 !", "", "L0.1", ""),
    ("at least: of a later incarnation", "+C1.0 +L0.1@0.2 !", "C1.0 L0.1", "", ""),
    ("at least: of an earlier incarnation", "+C0.9 +L1.1@1.0 !", "C0.9", "L1.1", ""),
    ("at least: follows", "+L0.1@0.2 ! +C0.5 !", "C0.5 L0.1", "", ""),
    ("at least: conflated away, and still met", "+C0.2 +C0.3 +L0.1@0.2 !", "C0.3 L0.1", "", "C0.2"),
    # implicit
    ("implicit: any version", "+I0.7 +A0.1 !", "A0.1 I0.7", "", ""),
    ("implicit: none", "+I0.7 !", "", "I0.7", ""),
    ("implicit: written before", "+A0.1 ! +I0.7 !", "A0.1 I0.7", "", ""),
    ("implicit: not that of an earlier incarnation", "+A0.1 ! +I1.0 !", "A0.1", "I1.0", ""),
    ("implicit: of the same incarnation, at last", "+A0.1 ! +I1.0 ! +A1.0 !", "A0.1 A1.0 I1.0", "", ""),
    ("implicit: of a later incarnation", "+A2.0 +I1.0 !", "A2.0 I1.0", "", ""),
    # deltas
    ("deltas are written as one", "+C0.1 +CC0.3@0.1 ! +D0.1^0.3 +D0.2^0.3 !", "C0.1 CC0.3 D0.1+0.2", "", ""),
    ("in the order of their versions", "+C0.1 +CC0.3@0.1 ! +D0.2^0.3 +D0.1^0.3 !", "C0.1 CC0.3 D0.1+0.2", "", ""),
    ("an equal delta", "+C0.1 +CC0.3@0.1 ! +D0.1^0.3 +D0.1^0.3 !", "C0.1 CC0.3 D0.1", "", "D0.1"),
    ("a delta that was written", "+C0.1 +CC0.3@0.1 +D0.1^0.3 ! +D0.1^0.3 !", "C0.1 CC0.3 D0.1", "", "D0.1"),
    ("a delta before its base", "+D0.1^0.3 ! +C0.1 +CC0.3@0.1 !", "C0.1 CC0.3 D0.1", "", ""),
    ("a delta on a newer base discards older ones", "+D0.1^0.3 +D0.2^0.3 +D0.3^0.4 !", "", "D0.3", "D0.1 D0.2"),
    ("a delta on an older base is discarded", "+D0.3^0.4 +D0.2^0.3 !", "", "D0.3", "D0.2"),
    ("a newer base discards deltas", "+D0.1^0.3 +CC0.4@0.1 !", "", "CC0.4", "D0.1"),
    ("a newer base discards deltas that come later", "+CC0.4@0.1 +D0.1^0.3 !", "", "CC0.4", "D0.1"),
    ("a base that was written discards older deltas", "+C0.1 +CC0.4@0.1 ! +D0.1^0.3 !", "C0.1 CC0.4", "", "D0.1"),
    ("an older base discards no deltas", "+D0.1^0.3 +CC0.2@0.1 +C0.1 !", "C0.1 CC0.2", "D0.1", ""),
    ("a base that is being written discards older deltas", "+C0.1 ! +CC0.4@0.1 > +D0.1^0.3 . !", "C0.1 CC0.4", "",
     "D0.1"),
    ("more deltas after some were written", "+C0.1 +CC0.3@0.1 +D0.1^0.3 ! +D0.2^0.3 +D0.3^0.3 !",
     "C0.1 CC0.3 D0.1 D0.2+0.3", "", ""),
    ("a delta during the write of a pack", "+C0.1 +CC0.3@0.1 ! +D0.1^0.3 > +D0.2^0.3 . !", "C0.1 CC0.3 D0.1 D0.2", "",
     ""),
    ("a late delta during the write of a newer one", "+C0.1 +CC0.3@0.1 ! +D0.2^0.3 > +D0.1^0.3 . !", "C0.1 CC0.3 D0.2",
     "", "D0.1"),
    ("a pack fails while a newer delta comes", "+C0.1 +CC0.3@0.1 ! +D0.1^0.3 +D0.2^0.3 > +D0.3^0.3 x !",
     "C0.1 CC0.3 D0.1+0.2+0.3", "", ""),
    ("a pack fails", "+C0.1 +CC0.3@0.1 ! +D0.1^0.3 +D0.2^0.3 > x !", "C0.1 CC0.3", "D0.1 D0.2", ""),
    ("a pack fails and is tried again", "+C0.1 +CC0.3@0.1 ! +D0.1^0.3 +D0.2^0.3 > x rD !", "C0.1 CC0.3 D0.1+0.2", "",
     ""),
    ("a pack fails while its base becomes old", "+C0.1 +CC0.3@0.1 ! +D0.1^0.3 > +CC0.4@0.1 x !", "C0.1 CC0.3 CC0.4", "",
     "D0.1"),
    ("a pack fails while one on a newer base comes", "+C0.1 +CC0.3@0.1 ! +D0.1^0.3 > +D0.2^0.4 x !", "C0.1 CC0.3",
     "D0.2", "D0.1"),
    ("deltas of a source that was started again", "+C0.1 +CC0.3@0.1 +D0.9^0.3 ! +D1.0^1.0 +CC1.0@0.1 !",
     "C0.1 CC0.3 D0.9 CC1.0 D1.0", "", ""),
    # hybrids
    ("hybrids are written as one", "+H0.1 +H0.2 +H0.3 !", "H0.1+0.2+0.3", "", ""),
    ("hybrids in the order of their versions", "+H0.2 +H0.1 !", "H0.1+0.2", "", ""),
    ("an equal hybrid", "+H0.1 +H0.1 !", "H0.1", "", "H0.1"),
    ("a hybrid that comes too late", "+H0.2 ! +H0.1 !", "H0.2", "", "H0.1"),
    ("a hybrid fails while another comes", "+H0.1 > +H0.2 x !", "H0.1+0.2", "", ""),
    ("hybrids over a restart", "+H0.5 +H1.0 !", "H0.5+1.0", "", ""),
    # failures
    ("a failure waits", "+A0.1 > x !", "", "A0.1", ""),
    ("a failure does not keep others waiting", "+A0.1 +C0.1 > x !", "C0.1", "A0.1", ""),
    ("a failure is tried again", "+A0.1 > x rA !", "A0.1", "", ""),
    ("a newer one replaces a failing one", "+A0.1 > x +A0.2 !", "A0.2", "", "A0.1"),
    ("a newer one comes during the failure", "+A0.1 > +A0.2 x !", "A0.2", "", "A0.1"),
    ("an older one does not replace a failing one", "+A0.2 > x +A0.1 !", "", "A0.2", "A0.1"),
    ("an equal one does not either", "+A0.2 > x +A0.2 !", "", "A0.2", "A0.2"),
    ("dependents of a failing one wait", "+C0.1 +CC0.1@0.1 > x !", "", "C0.1 CC0.1", ""),
    ("dependents follow when it works", "+C0.1 +CC0.1@0.1 > x rC !", "C0.1 CC0.1", "", ""),
    ("what is given up waits no more", "+A0.1 > p !", "", "", ""),
    ("what is given up may come again", "+A0.1 > p +A0.1 !", "A0.1", "", ""),
    ("dependents of what is given up wait", "+C0.1 +CC0.1@0.1 > p !", "", "CC0.1", ""),
    ("a newer one after one was given up", "+C0.1 +CC0.1@0.1 > p +C0.2 +CC0.2@0.2 !", "C0.2 CC0.2", "", "CC0.1"),
    ("deltas after their newer base was given up", "+C0.1 +CC0.3@0.1 ! +CC0.4@0.1 > p +D0.1^0.3 !", "C0.1 CC0.3 D0.1",
     "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "written", "waiting", "conflated"), [each[1:] for each in CASES],
                         ids=[each[0] for each in CASES])  # fmt: skip
def test_a_unit(text: str, written: str, waiting: str, conflated: str) -> None:
    story = Story(text)
    assert story.written == written.split()
    assert story.waiting == waiting.split()
    assert story.conflated == conflated.split()


REASONS = [
    ("+CC0.1@0.2", "waits for C 0.2; none is there"),
    ("+C0.1 ! +CC0.1@0.2", "waits for C 0.2; 0.1 is there"),
    ("+C0.1 ! +L0.1@0.2", "waits for C 0.2 or newer; 0.1 is there"),
    ("+I3.0", "waits for any A of incarnation 3"),
    ("+D0.1^0.3", "waits for CC 0.3; none is there"),
    ("+A0.1 > x", "refused"),
    ("+C0.2 > p +CC0.1@0.2", "waits for C 0.2; none is there; C 0.2 has failed: refused too often"),
    ("+C0.1 > p +CC0.1@0.2", "waits for C 0.2; none is there"),
    ("+A0.1 > p +I0.1", "waits for any A of incarnation 0; A 0.1 has failed: refused too often"),
]


@pytest.mark.parametrize(("text", "reason"), REASONS)
def test_what_waits_says_why(text: str, reason: str) -> None:
    assert Story(text).reasons == [reason]


def test_dependents_are_told_no_more_once_a_newer_one_is_written() -> None:
    assert Story("+C0.2 > p +C0.3 ! +CC0.1@0.2").reasons == ["waits for C 0.2; 0.3 is there"]


def test_a_bundle_that_an_earlier_attempt_wrote_is_not_another_one_of_its_version() -> None:
    state = UnitState(Unit("hub1"), KINDS, {"A": Processed(Version(0, 5), Place(0, 7))})
    state.insert(bundle("A0.5", 7))
    state.insert(bundle("A0.5", 8))
    assert [each.place.offset for each in state.repeated] == [7]
    assert [each.place.offset for each in state.conflated] == [8]


def test_what_adds_up_does_not_overtake_what_waits_elsewhere() -> None:
    state = UnitState(Unit("hub1"), KINDS, held={"H", "A"})
    story = Story("+H0.5 +A0.5 !", state)
    assert story.written == ["A0.5"]
    assert story.reasons == ["waits behind other bundles of H"]


WRONG: list[tuple[list[Kind], str]] = [
    ([Kind("A", 0), Kind("A", 1)], "declared twice"),
    ([Kind("A", 0, depends_on=Dependency("B"))], "not declared"),
    ([Kind("A", 0), Kind("B", 0, depends_on=Dependency("A"))], "higher priority"),
    ([Kind("A", 1), Kind("B", 0, depends_on=Dependency("A"))], "higher priority"),
    ([Kind("A", 0, depends_on=Dependency("A"))], "higher priority"),
    ([Kind("A", 0), Kind("B", 1, depends_on=Dependency("A"), group="b")], "another group"),
    ([Kind("A", 0), Kind("B", 1, Sync.DELTA)], "say in depends_on"),
    ([Kind("A", 0), Kind("B", 1, Sync.DELTA, Dependency("A", Match.EXACT, True))], "implicit is wrong"),
]


@pytest.mark.parametrize(("kinds", "problem"), WRONG)
def test_kinds_that_contradict_each_other_are_refused(kinds: list[Kind], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Kinds(kinds)
