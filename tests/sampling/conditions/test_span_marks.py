"""What other samplers have written on spans: thresholds and decisions."""

from __future__ import annotations

import pytest

from penstock.sampling.conditions.decision_marks import decision_marks, decision_needs
from penstock.sampling.conditions.tail_thresholds import TAIL_THRESHOLD, TAIL_THRESHOLD_NEEDS, tail_thresholds
from penstock.sampling.span_item import DECIDED_NOT_SAMPLED, DECIDED_SAMPLED, NO_THRESHOLD
from tests.sampling.conditions.tables import EMPTY, Span, Value, table

NONE = int(NO_THRESHOLD)
THRESHOLDS: list[tuple[Value, int]] = [
    ("0x0", 0),
    ("0x8", 0x80000000000000),
    ("0x08", 0x08000000000000),
    ("0xfd70a3d70a3d7", 0xFD70A3D70A3D70),
    ("0xffffffffffffff", 0xFFFFFFFFFFFFFF),
    ("0x00000000000001", 1),
    ("0xAbCdEf", 0xABCDEF00000000),
    ("0x", NONE),
    ("", NONE),
    ("8", NONE),
    ("0X8", NONE),
    ("0x8g", NONE),
    ("0x8\n", NONE),
    (" 0x8", NONE),
    ("0x123456789abcdef", NONE),
    ("0x٣", NONE),
    (8, NONE),
    (True, NONE),
    (b"0x8", NONE),
    (EMPTY, NONE),
]


@pytest.mark.parametrize(("value", "expected"), THRESHOLDS, ids=[repr(value) for value, _ in THRESHOLDS])
def test_a_threshold_of_a_span(value: Value, expected: int) -> None:
    spans = table(TAIL_THRESHOLD_NEEDS, Span(), Span({TAIL_THRESHOLD: value}), Span({TAIL_THRESHOLD: "0x1"}))
    assert tail_thresholds(spans).tolist() == [NONE, expected, 0x10000000000000]


def test_spans_without_thresholds() -> None:
    assert tail_thresholds(table(TAIL_THRESHOLD_NEEDS)).tolist() == []
    assert tail_thresholds(table(TAIL_THRESHOLD_NEEDS, Span(), Span())).tolist() == [NONE, NONE]


SAMPLED, NOT_SAMPLED = int(DECIDED_SAMPLED), int(DECIDED_NOT_SAMPLED)
DECISIONS: list[tuple[str, dict[str, Value], int]] = [
    ("true", {"penstock.decision": True}, SAMPLED),
    ("false", {"penstock.decision": False}, NOT_SAMPLED),
    ("true as a string", {"penstock.decision": "true"}, SAMPLED),
    ("false as a string", {"penstock.decision": "false"}, NOT_SAMPLED),
    ("the other name", {"atlassiansampling.decision": "false"}, NOT_SAMPLED),
    ("the first name counts", {"penstock.decision": False, "atlassiansampling.decision": True}, NOT_SAMPLED),
    ("also if it is true", {"penstock.decision": True, "atlassiansampling.decision": False}, SAMPLED),
    ("what says nothing does not count", {"penstock.decision": 1, "atlassiansampling.decision": True}, SAMPLED),
    ("another case", {"penstock.decision": "True"}, 0),
    ("a number", {"penstock.decision": 1}, 0),
    ("no value", {"penstock.decision": EMPTY}, 0),
    ("nothing", {}, 0),
]


@pytest.mark.parametrize(("resource", "expected"), [c[1:] for c in DECISIONS], ids=[c[0] for c in DECISIONS])
def test_a_decision_of_another_sampler(resource: dict[str, Value], expected: int) -> None:
    spans = table(decision_needs(), Span(), Span(resource=resource), Span({"penstock.decision": True}))
    assert decision_marks(spans).tolist() == [0, expected, 0]


def test_decisions_by_another_name() -> None:
    names = ("my.decision",)
    spans = table(decision_needs(names), Span(resource={"my.decision": True, "penstock.decision": False}))
    assert decision_marks(spans, names).tolist() == [SAMPLED]
