"""A whole batch at once: units take turns, and what is known from before counts."""

from __future__ import annotations

import time

from penstock.conflation.attempts import LONGEST_PAUSE, Attempts
from penstock.conflation.batch_plan import Known, plan_batch
from penstock.conflation.bundle import Bundle, Place, Processed
from penstock.conflation.kinds import Kind, Kinds
from penstock.conflation.unmet_dependency import Parked
from penstock.conflation.version import Version
from tests.conflation.samples import KINDS, bundle, told


def test_units_take_turns() -> None:
    sent = [bundle("A0.1", 0, "busy"), bundle("C0.1", 1, "busy"), bundle("H0.1", 2, "busy"), bundle("A0.1", 3, "calm")]
    plan = plan_batch(KINDS, sent)
    assert [(work.unit.source, told(work.bundles)) for work in plan.writes] == [
        ("busy", "A0.1"), ("calm", "A0.1"), ("busy", "C0.1"), ("busy", "H0.1"),
    ]  # fmt: skip


def test_sources_do_not_depend_on_each_other() -> None:
    plan = plan_batch(KINDS, [bundle("C0.2", 0, "hub1"), bundle("CC0.1@0.2", 1, "hub2")])
    assert [told(work.bundles) for work in plan.writes] == ["C0.2"]
    assert [each.bundle.source for each in plan.waiting] == ["hub2"]


def test_what_was_written_before_counts() -> None:
    known = Known({("hub1", "C"): Processed(Version(0, 2)), ("hub2", "A"): Processed(Version(0, 9), Place(0, 4))})
    sent = [bundle("CC0.1@0.2", 3), bundle("A0.9", 4, "hub2"), bundle("A0.8", 5, "hub2")]
    plan = plan_batch(KINDS, sent, known)
    assert [told(work.bundles) for work in plan.writes] == ["CC0.1"]
    assert [each.place.offset for each in plan.repeated] == [4]
    assert [each.place.offset for each in plan.conflated] == [5]


def test_what_was_given_up_is_told() -> None:
    known = Known(parked={("hub1", "C"): Parked(Version(0, 2), "a value is too long")})
    (waiting,) = plan_batch(KINDS, [bundle("CC0.1@0.2")], known).waiting
    assert waiting.reason.endswith("C 0.2 has failed: a value is too long")


def test_what_waits_elsewhere_is_of_one_source_alone() -> None:
    sent = [bundle("H0.2", 0, "hub1"), bundle("H0.2", 1, "hub2")]
    plan = plan_batch(KINDS, sent, Known(held=[("hub1", "H")]))
    assert [work.unit.source for work in plan.writes] == ["hub2"]


def test_groups_of_independent_kinds_are_units_of_their_own() -> None:
    kinds = Kinds([Kind("A", 0), Kind("Z", 0, group="apart")])
    plan = plan_batch(kinds, [bundle("A0.1", 0), bundle("Z0.1", 1)])
    assert [work.unit.group for work in plan.writes] == ["", "apart"]


def test_many_sources_and_one_with_thousands_of_deltas_are_no_trouble() -> None:
    sent = [
        Bundle(f"hub{hub}", kind, Version(0, 1), Place(0, hub), Version(0, 1) if kind == "CC" else None)
        for hub in range(300)
        for kind in ("A", "C", "CC", "I", "H")
    ]
    deltas = [bundle(f"D0.{n}^0.1", n, "hub7") for n in range(1, 5_001)]
    began = time.process_time()
    plan = plan_batch(KINDS, [*deltas, *sent])
    assert len(plan.writes) == 1_501
    assert not plan.waiting
    assert max(len(work.bundles) for work in plan.writes) == 5_000
    assert time.process_time() - began < 20, "it takes a fraction of a second"


def test_a_refused_bundle_is_tried_less_and_less_often_and_then_given_up() -> None:
    attempts = Attempts(5)
    assert [attempts.pause(failures) for failures in (1, 2, 3)] == [1, 2, 4]
    assert attempts.pause(1_000) == LONGEST_PAUSE
    assert [attempts.is_last(failures) for failures in (1, 4, 5, 6)] == [False, False, True, True]
