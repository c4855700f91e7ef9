"""The chain: namespaces, tokens, malformed records, and the sum that must come out."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.component import StepConfig
from penstock.errors import RouteError
from penstock.outcome import FAILURE_SCHEMA, PLACE_COLUMNS, Outcome
from penstock.record import Record, entries, placed
from penstock.steps.chain import Chain, Link, tokens
from penstock.steps.contract import ArrowStep, namespace_pattern


class Upper(ArrowStep[StepConfig]):
    """Changes every row it is given, so that a test sees which ones it was given."""

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        data = pc.cast(pc.utf8_upper(pc.cast(batch.column("data"), pa.string())), pa.binary())
        return Outcome(batch.set_column(batch.schema.get_field_index("data"), batch.schema.field("data"), data))


class DropB(ArrowStep[StepConfig]):
    """Skips ``b`` and fails ``c``."""

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        data = pc.cast(batch.column("data"), pa.string())
        failing = batch.filter(pc.equal(data, "c"))
        texts = [pa.array([text] * failing.num_rows, pa.string()) for text in ("bad", "c is not allowed")]
        places = [failing.column(name) for name in PLACE_COLUMNS]
        failures = pa.RecordBatch.from_arrays([*places, *texts], schema=FAILURE_SCHEMA)
        kept = batch.filter(pc.invert(pc.is_in(data, pa.array(["b", "c"]))))
        return Outcome(kept, batch.num_rows - kept.num_rows - failing.num_rows, failures)


class Loses(ArrowStep[StepConfig]):
    def apply(self, batch: pa.RecordBatch) -> Outcome:
        return Outcome(batch.slice(1))


def batch(*rows: tuple[str, str], headers: dict[str, str] | None = None) -> pa.RecordBatch:
    records = [Record(data.encode(), namespace=namespace, headers=headers or {}) for namespace, data in rows]
    return placed(entries(records), partition=3, first_offset=100)


def values(result: pa.RecordBatch) -> list[str]:
    return [value.decode() for value in result.column("data").to_pylist()]


def test_a_step_touches_only_its_namespaces_and_order_is_kept() -> None:
    link = Link("upper", Upper(StepConfig()), namespace_pattern("/^orders/"))
    out = Chain([link]).run(batch(("orders", "a"), ("users", "b"), ("orders.eu", "c"), ("users", "d")))
    assert values(out.kept) == ["A", "b", "C", "d"]
    assert out.kept.column("offset").to_pylist() == [100, 101, 102, 103]


def test_a_route_skips_and_counts_what_its_namespace_does_not_match() -> None:
    out = Chain([], namespace_pattern("orders")).run(batch(("orders", "a"), ("users", "b"), ("my orders", "c")))
    assert values(out.kept) == ["a", "c"]
    assert out.skipped == {"namespace": 1}


def test_a_namespace_that_matches_nothing_skips_everything() -> None:
    out = Chain([Link("upper", Upper(StepConfig()))], namespace_pattern("nowhere")).run(batch(("orders", "a")))
    assert out.kept.num_rows == 0
    assert out.skipped == {"namespace": 1}


def sent_with(*tokens: str | None) -> pa.RecordBatch:
    """A record per token, numbered; ``None``: without one, beside another header."""
    headers = [{"endpoint": "js"} | ({} if token is None else {"token": token}) for token in tokens]
    rows = [Record(b"%d" % n, namespace="web", headers=found) for n, found in enumerate(headers)]
    return placed(entries(rows), partition=3, first_offset=100)


ONLY_KEYS = [
    ([], ["0", "1", "2", "3"], {}),
    (["site"], ["0", "3"], {"only_keys": 2}),
    (["site", "app"], ["0", "1", "3"], {"only_keys": 1}),
    (["Site"], [], {"only_keys": 4}),
]


@pytest.mark.parametrize(("keys", "kept", "skipped"), ONLY_KEYS)
def test_a_route_takes_only_the_tokens_it_names_and_counts_the_others(
    keys: list[str], kept: list[str], skipped: dict[str, int]
) -> None:
    out = Chain([], only_keys=keys).run(sent_with("site", "app", None, "site"))
    assert values(out.kept) == kept
    assert out.skipped == skipped


def test_a_part_of_a_batch_is_filtered_by_its_own_tokens() -> None:
    out = Chain([], only_keys=["site"]).run(sent_with("site", "app", "app", "site", "app").slice(1, 3))
    assert values(out.kept) == ["3"]
    assert out.skipped == {"only_keys": 2}


def test_records_without_any_header_are_not_of_the_tokens_named() -> None:
    nothing = pa.nulls(2, sent_with("site").schema.field("headers").type)
    rows = sent_with("site", "site")
    place = rows.schema.get_field_index("headers")
    out = Chain([], only_keys=["site"]).run(rows.set_column(place, rows.schema.field(place), nothing))
    assert out.kept.num_rows == 0
    assert out.skipped == {"only_keys": 2}


HEADERS = st.lists(st.tuples(st.sampled_from(["token", "endpoint"]), st.sampled_from("ab")), max_size=3)


@given(rows=st.lists(st.none() | HEADERS), start=st.integers(0, 3), length=st.integers(0, 5))
def test_the_token_of_each_record_is_found_whatever_else_it_carries(
    rows: list[list[tuple[str, str]] | None], start: int, length: int
) -> None:
    whole = sent_with(*["site"] * len(rows))
    place = whole.schema.get_field_index("headers")
    field = whole.schema.field(place)
    part = whole.set_column(place, field, pa.array(rows, field.type)).slice(start, length)
    first = [next((value for name, value in row or [] if name == "token"), None) for row in rows]
    assert tokens(part).to_pylist() == first[start : start + length]


def test_a_torn_record_of_another_token_is_none_of_this_routes_failures() -> None:
    torn = batch(("web", "torn"), headers={"token": "app", "malformed": "not JSON"})
    assert Chain([], only_keys=["site"]).run(torn).failures == []
    assert len(Chain([], only_keys=["app"]).run(torn).failures) == 1


def test_a_namespace_and_tokens_are_counted_apart() -> None:
    rows = pa.concat_batches([batch(("orders", "a")), sent_with("app", "site")])
    out = Chain([], namespace_pattern("web"), ["site"]).run(rows)
    assert values(out.kept) == ["1"]
    assert out.skipped == {"namespace": 1, "only_keys": 1}


def test_an_empty_batch_passes_the_filters() -> None:
    assert Chain([], namespace_pattern("web"), ["site"]).run(sent_with()).skipped == {}


def test_skips_and_failures_are_counted_under_the_step_that_made_them() -> None:
    chain = Chain([Link("upper", Upper(StepConfig()), namespace_pattern("users")), Link("drop", DropB(StepConfig()))])
    out = chain.run(batch(("orders", "a"), ("orders", "b"), ("orders", "c"), ("users", "b")))
    assert values(out.kept) == ["a", "B"]
    assert out.skipped == {"drop": 1}
    (failures,) = out.failures
    assert failures.to_pylist() == [
        {"partition": 3, "offset": 102, "item": 0, "code": "bad", "message": "c is not allowed", "step": "drop"}
    ]


def test_a_record_that_its_source_could_not_read_fails_before_the_first_step() -> None:
    torn = Record(b"torn", namespace="web", headers={"malformed": "line 3: not JSON"})
    both = pa.concat_batches([batch(("web", "a")), placed(entries([torn]), partition=3, first_offset=101)])
    out = Chain([Link("upper", Upper(StepConfig()))]).run(both)
    assert values(out.kept) == ["A"]
    assert [(f["step"], f["code"], f["message"]) for f in out.failures[0].to_pylist()] == [
        ("source", "malformed", "line 3: not JSON")
    ]


@pytest.mark.parametrize("pattern", [None, namespace_pattern("orders")])
def test_a_step_that_loses_a_record_is_caught(pattern: object) -> None:
    link = Link("loses", Loses(StepConfig()), pattern)  # type: ignore[arg-type]
    with pytest.raises(RouteError, match="given 2 records and accounts for 1"):
        Chain([link]).run(batch(("orders", "a"), ("orders", "b")))


@pytest.mark.parametrize(
    ("text", "matches"), [("/.*/", True), (".*", True), ("/^a$/", False), ("a", True), ("b", False)]
)
def test_namespaces_are_unanchored_expressions_with_optional_slashes(text: str, matches: bool) -> None:
    assert bool(namespace_pattern(text).search("xay")) is matches


def test_a_bad_namespace_says_what_is_wrong_with_it() -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        namespace_pattern("/(/")


@pytest.mark.parametrize(
    ("text", "instead"),
    [("/^ORD/i", "'/(?i)^ORD/'"), ("/a.b/gmi", "'/(?im)a.b/'"), ("/a/g", "'/a/'"), ("/a/b/i", "'/(?i)a/b/'")],
)
def test_flags_behind_a_namespaces_slashes_are_refused_with_what_to_write(text: str, instead: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"'{text}' has flags")) as caught:
        namespace_pattern(text)
    assert instead in str(caught.value)


@pytest.mark.parametrize("text", ["/", "//", "/a", "/var/log", "a/i", "/(?i)ORD/", "[/]a/i"])
def test_slashes_that_are_no_flags_stay(text: str) -> None:
    assert namespace_pattern(text)
