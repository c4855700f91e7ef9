"""Random conditions of random spans: the vectorised answers are those of the plain evaluator."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sampling.conditions.ottl_condition import OttlCondition
from penstock.sampling.policy_config import ErrorMode
from tests.sampling.conditions.ottl_reference import Tree, is_met
from tests.sampling.conditions.tables import EMPTY, Event, Span, Value, met

KEYS = ("a", "b", "é")
SOME_TEXTS = ["", "a", "ab", "b", "é", "ée", "\U0001f980", "1", "-12", "007", "9223372036854775808", "2.5", "true",
              "x\ny", 'say "a"', "back\\slash"]  # fmt: skip
SOME_INTEGERS = [0, 1, -1, 2, 12, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 1700000000000000000]
SOME_DOUBLES = [0.0, -0.0, 1.0, -1.0, 2.5, -0.5, 12.0, 2.0**53, 2.0**63, -(2.0**63), 1e23, 5e-324, 1e300]
WITHOUT_LITERAL: list[Value] = [float("nan"), float("inf"), float("-inf"), b"\x00", [1], {"a": 1}, EMPTY]
VALUES: list[Value] = [*SOME_TEXTS, *SOME_INTEGERS, *SOME_DOUBLES, *WITHOUT_LITERAL, True, False]

TEXTS = st.sampled_from(SOME_TEXTS)
INTEGERS = st.sampled_from(SOME_INTEGERS)
DOUBLES = st.sampled_from(SOME_DOUBLES)
SCALARS = st.one_of(TEXTS, INTEGERS, DOUBLES, st.booleans())
ATTRIBUTES = st.dictionaries(st.sampled_from(KEYS), SCALARS | st.sampled_from(WITHOUT_LITERAL))
PATTERNS = st.sampled_from(["^a", "1", "e+", "^$", "^true$", "[0-9]{2}", "é", ".", "^0*$", "a|b", "nil"])
TIMES = st.sampled_from([0, 1, 2**53 + 1, 1700000000000000000, 2**63 - 1])

events = st.builds(Event, name=TEXTS, attributes=ATTRIBUTES, time=TIMES)
spans = st.builds(
    Span,
    attributes=ATTRIBUTES,
    resource=ATTRIBUTES,
    events=st.lists(events, max_size=3),
    name=TEXTS,
    kind=st.integers(0, 6),
    status=st.integers(0, 2),
    status_message=TEXTS,
    parent_id=st.sampled_from([0, 1, 2**64 - 1]),
    start=TIMES,
    end=TIMES,
    flags=st.integers(0, 2**32 - 1),
    scope_name=TEXTS,
)

SPAN_PATHS = ("name", "kind", "status.code", "status.message", "trace_id", "span_id.string", "parent_span_id",
              "duration", "start_time_unix_nano", "flags")  # fmt: skip
literals = st.one_of(
    SCALARS, st.none(), st.sampled_from([bytes(8), bytes(range(16)), b"\xff" * 8]),
).map(lambda value: Tree("literal", (value,)))  # fmt: skip


def plain_path(*names: str) -> st.SearchStrategy[Tree]:
    return st.sampled_from(names).map(lambda name: Tree("path", (name, None)))


def keyed_path(*names: str) -> st.SearchStrategy[Tree]:
    return st.builds(lambda name, key: Tree("path", (name, key)), st.sampled_from(names), st.sampled_from(KEYS))


of_span = st.one_of(
    keyed_path("attributes", "span.attributes", "resource.attributes"),
    plain_path(*SPAN_PATHS, "span.name", "scope.name"),
)
of_event = st.one_of(
    keyed_path("attributes", "span.attributes", "resource.attributes"),
    plain_path("name", "time_unix_nano", "scope.name", *(f"span.{path}" for path in SPAN_PATHS)),
)


def make(form: str, *parts: st.SearchStrategy[object]) -> st.SearchStrategy[Tree]:
    return st.builds(lambda *made: Tree(form, made), *parts)


def values(paths: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    def grown(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.one_of(
            make("calculate", st.sampled_from("+-*/"), inner, inner),
            make("minus", inner),
            *(make(name, inner) for name in ("Int", "Double", "String", "IsString", "IsInt", "IsBool")),
            make("Concat", inner, inner, TEXTS),
            make("IsMatch", inner, PATTERNS),
        )

    return st.recursive(st.one_of(paths, paths, literals), grown, max_leaves=4)


def conditions(paths: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    value = values(paths)
    symbols = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    simple = st.one_of(
        make("compare", symbols, paths, literals),
        make("compare", symbols, value, value),
        make("IsMatch", value, PATTERNS),
        make("HasPrefix", value, TEXTS),
        make("HasSuffix", value, TEXTS),
        *(make(name, value) for name in ("IsString", "IsInt", "IsDouble", "IsBool", "IsMap", "IsList")),
        make("IsRootSpan"),
        st.booleans().map(lambda answer: Tree("literal", (answer,))),
    )
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            make("and", inner, inner), make("or", inner, inner, inner), make("not", inner), make("and", inner, simple)
        ),
        max_leaves=6,
    )


def varied_spans() -> list[Span]:
    """Each value beside others, in spans with none to three events."""
    everything = [*VALUES, None]

    def attributes(place: int, step: int) -> dict[str, Value]:
        found = {key: everything[(place * step + 5 * number) % len(everything)] for number, key in enumerate(KEYS)}
        return {key: value for key, value in found.items() if value is not None}

    return [
        Span(
            attributes(place, 1),
            attributes(place, 3),
            [Event("ab"[place % 2], attributes(place + number, 7), number) for number in range(place % 4)],
            name=("a", "ab", "é", "")[place % 4],
            kind=place % 7,
            status=place % 3,
            status_message=("", "b", "12")[place % 3],
            parent_id=(0, 1, 2**64 - 1)[place % 3],
            start=(0, 1, 2**53)[place % 3],
            end=(5, 0, 2**53 + 1)[place % 3],
            flags=place,
        )
        for place in range(2 * len(everything))
    ]


VARIED = varied_spans()
MODES = st.sampled_from(ErrorMode)


def assert_as_reference(span: list[Tree], spanevent: list[Tree], many: list[Span], mode: ErrorMode) -> None:
    condition = OttlCondition(tuple(tree.text for tree in span), tuple(tree.text for tree in spanevent), mode)
    expected = [is_met(span, spanevent, each, propagate=mode is ErrorMode.PROPAGATE) for each in many]
    assert met(condition, *many) == expected


@settings(max_examples=300)
@given(conditions(of_span))
def test_a_condition_says_of_many_spans_what_it_says_of_each(tree: Tree) -> None:
    assert_as_reference([tree], [], VARIED, ErrorMode.IGNORE)


@settings(max_examples=200)
@given(conditions(of_event))
def test_a_condition_says_of_many_events_what_it_says_of_each(tree: Tree) -> None:
    assert_as_reference([], [tree], VARIED, ErrorMode.IGNORE)


@given(st.lists(conditions(of_span), max_size=3), st.lists(conditions(of_event), min_size=1, max_size=2), MODES)
def test_several_conditions_are_asked_in_their_order(span: list[Tree], spanevent: list[Tree], mode: ErrorMode) -> None:
    assert_as_reference(span, spanevent, VARIED, mode)


@given(conditions(of_span), conditions(of_event), st.lists(spans, max_size=6), MODES)
def test_conditions_of_random_spans(span: Tree, spanevent: Tree, many: list[Span], mode: ErrorMode) -> None:
    assert_as_reference([span], [spanevent], many, mode)
