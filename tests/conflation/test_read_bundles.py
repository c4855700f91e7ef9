"""Records of the log become bundles, column by column; those that are none fail with a reason."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from penstock.conflation.bundle_rules import TEXTS, bundle_problem
from penstock.conflation.read_bundles import BUNDLE_SCHEMA, read_bundles
from penstock.outcome import FAILURE_SCHEMA
from penstock.record import RECORD_SCHEMA, Header, Record, entries, placed
from tests.conflation.samples import KINDS

DESCRIBED = {"source": "hub1", "kind": "A", "version": "0.7"}


def batch_of(records: Sequence[Record]) -> pa.RecordBatch:
    return placed(entries(records), 3, 100)


def described(headers: Mapping[str, str], data: bytes | None = b"{}") -> Record:
    return Record(data, headers={"token": "t", **headers, "endpoint": "bundles"})


def envelope(members: Mapping[str, object]) -> Record:
    return Record(json.dumps({"data": {}, **members}).encode(), headers={"position": "1"})


def read_one(record: Record) -> tuple[str, str] | dict[str, object]:
    """Code and message of its failure, or the bundle."""
    bundles, failures = read_bundles(batch_of([record]), KINDS)
    assert bundles.schema == BUNDLE_SCHEMA
    assert failures.schema == FAILURE_SCHEMA
    assert bundles.num_rows + failures.num_rows == 1
    if failures.num_rows:
        (failure,) = failures.to_pylist()
        assert (failure["partition"], failure["offset"], failure["item"]) == (3, 100, 0)
        return failure["code"], failure["message"]
    (found,) = bundles.drop_columns(["timestamp"]).to_pylist()
    return found


GOOD: list[Mapping[str, str]] = [
    DESCRIBED,
    {**DESCRIBED, "version": "999999999999999999.0"},
    {**DESCRIBED, "kind": "CC", "depends_on": "0.2"},
    {**DESCRIBED, "kind": "D", "base": "0.2"},
    {**DESCRIBED, "kind": "D", "base": "0.2", "depends_on": "0.2"},
    {**DESCRIBED, "kind": "D", "base": "0.2", "depends_on": "00.02"},
    {**DESCRIBED, "kind": "CC", "base": "0.2", "depends_on": "0.3"},
    {**DESCRIBED, "kind": "I"},
    {**DESCRIBED, "kind": "H"},
    {**DESCRIBED, "source": "//hub.example/a b?ü=\U0001f600"},
    {**DESCRIBED, "source": "h" * 256},
]


@pytest.mark.parametrize("members", GOOD, ids=str)
def test_headers_and_an_envelope_tell_the_same_bundle(members: Mapping[str, str]) -> None:
    expected = {
        **dict.fromkeys(map(str, TEXTS)),
        **members,
        "partition": 3,
        "offset": 100,
        "item": 0,
        "data": b"{}",
    }
    assert read_one(described(members)) == expected
    assert read_one(envelope(members)) == expected
    assert read_one(envelope({**dict.fromkeys(("depends_on", "base")), **members})) == expected, "a null is nothing"


BAD: list[tuple[Mapping[str, str], str, str]] = [
    ({"kind": "A", "version": "0.7"}, "bad_bundle", "kind 'A' of source (none): it has no source"),
    ({"source": "hub1", "version": "0.7"}, "bad_bundle", "kind (none) of source 'hub1': it has no kind"),
    ({"source": "hub1", "kind": "A"}, "bad_version", "it has no version; a version is incarnation.generation"),
    ({**DESCRIBED, "source": ""}, "bad_bundle", "its source is ''; a name has 1 to 256 characters"),
    ({**DESCRIBED, "source": "h" * 257}, "bad_bundle", "a name has 1 to 256 characters"),
    ({**DESCRIBED, "source": "hub\x1f1"}, "bad_bundle", "none of them a control character"),
    ({**DESCRIBED, "source": "hub1\n"}, "bad_bundle", "none of them a control character"),
    ({**DESCRIBED, "source": "hub\x001"}, "bad_bundle", "none of them a control character"),
    ({**DESCRIBED, "kind": "Z"}, "unknown_kind", "kind 'Z' of source 'hub1': no such kind is declared; there are A, C"),
    ({**DESCRIBED, "version": "7"}, "bad_version", "kind 'A' of source 'hub1': its version is '7'; a version is"),
    ({**DESCRIBED, "version": ""}, "bad_version", "its version is ''"),
    ({**DESCRIBED, "version": "0.7\n"}, "bad_version", "its version is"),
    ({**DESCRIBED, "version": "9" * 5000 + ".0"}, "bad_version", f"its version is '{'9' * 60}';"),
    ({**DESCRIBED, "depends_on": "x"}, "bad_version", "its depends_on is 'x'"),
    ({**DESCRIBED, "base": "-1.0"}, "bad_version", "its base is '-1.0'"),
    ({**DESCRIBED, "kind": "D"}, "missing_base", "it is a change and has no base"),
    ({**DESCRIBED, "kind": "D", "depends_on": "0.1"}, "missing_base", "it is a change and has no base"),
    ({**DESCRIBED, "kind": "D", "base": "0.2", "depends_on": "0.1"}, "bad_bundle", "of the same kind: '0.1'; leave it"),
    ({**DESCRIBED, "kind": "D", "base": "0.2", "depends_on": "1.2"}, "bad_bundle", "it is a change of its base, and"),
    ({**DESCRIBED, "kind": "CC"}, "missing_dependency", "it has no depends_on: the version of C that"),
]


@pytest.mark.parametrize(("members", "code", "message"), BAD, ids=str)
def test_what_is_no_bundle_fails_and_says_why(members: Mapping[str, str], code: str, message: str) -> None:
    for record in (described(members), envelope(members)):
        failure = read_one(record)
        assert isinstance(failure, tuple)
        assert failure[0] == code
        assert message in failure[1]


TRIED = ["0.7", "", "7", "hub1", "A", "x\x1f", "x\n", "é" * 256, "é" * 257, "9" * 99 + ".0"]
texts = st.none() | st.sampled_from(TRIED)


@given(st.fixed_dictionaries(dict.fromkeys(TEXTS, texts)), st.booleans(), st.sets(st.sampled_from(TEXTS)))
def test_one_bundle_is_judged_as_a_column_of_them(
    found: dict[Header, str | None], has_data: bool, not_text: set[Header]
) -> None:
    """But for what only those know who know the kinds."""
    members = {str(name): f"<{text}>" if name in not_text else text for name, text in found.items() if text is not None}
    data = json.dumps({**members, **({"data": 1} if has_data else {})})
    for name in not_text:
        data = data.replace(f'"{name}": "<', f'"{name}": ["').replace('>"', '"]')
    failure = read_one(Record(data.encode()))
    written = {
        name: text if name not in not_text or text is None else json.dumps([text]) for name, text in found.items()
    }
    alone = bundle_problem(written, {name for name in not_text if found[name] is not None}, has_data)
    if isinstance(failure, tuple) and failure[0] in ("bad_bundle", "bad_version"):
        assert alone == failure[1]
    else:
        assert alone is None or alone.endswith("it has no data")


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (None, "bad_bundle", "the record has no data"),
        (b"", "bad_bundle", "the document is empty"),
        (b"[1]", "bad_bundle", "this is an array"),
        (b"nonsense", "bad_bundle", "invalid JSON"),
        (b'{"source":"hub1"', "bad_bundle", "breaks off"),
        (b'{"source":"hub1","kind":"A","version":NaN}', "bad_bundle", "invalid JSON"),
        (b"{}", "bad_bundle", "it has no source"),
        (b'{"source":1,"kind":"A","version":"0.7","data":{}}', "bad_bundle", "its source is 1, which is no text"),
        (b'{"source":"h","kind":["A"],"version":"0.7"}', "bad_bundle", 'its kind is ["A"], which is no text'),
        (b'{"source":"h","kind":"A","version":0.7}', "bad_version", "its version is 0.7, which is no text; put it in"),
        (b'{"source":"h","kind":"A","version":"0.7","base":0.1}', "bad_version", "its base is 0.1, which is no text"),
        (b'{"source":"h","kind":"A","version":"0.7"}', "bad_bundle", "kind 'A' of source 'h': it has no data"),
    ],
)
def test_an_envelope_that_cannot_be_read_fails_and_says_why(data: bytes | None, code: str, message: str) -> None:
    failure = read_one(Record(data))
    assert isinstance(failure, tuple)
    assert failure[0] == code
    assert message in failure[1]


def test_a_described_bundle_without_data_fails() -> None:
    assert read_one(described(DESCRIBED, None)) == ("bad_bundle", "kind 'A' of source 'hub1': it has no data")


def test_an_event_that_looks_like_a_bundle_is_none() -> None:
    """Who may send events may not be who may report the state of a source."""
    looks = envelope(DESCRIBED).data
    batch = batch_of([Record(looks, headers={"token": "site"}), Record(looks), described(DESCRIBED)])
    bundles, failures = read_bundles(batch, KINDS)
    assert bundles.column("offset").to_pylist() == [101, 102]
    assert [(row["offset"], row["code"]) for row in failures.to_pylist()] == [(100, "bad_bundle")]
    assert "sent as an event" in failures.to_pylist()[0]["message"]


@pytest.mark.parametrize(
    "data",
    [b'{"items":[ 2.50, 1e400, 12345678901234567890123, "\\u00e9" ] ,"items" : []}', b"null", b"[ ]", b"7"],
)
def test_the_data_of_an_envelope_is_kept_as_it_is_written(data: bytes) -> None:
    text = b' {"ignored":[{}],"source":"hub1","d\\u0061ta" : %b , "kind":"A","version":"0.7"} ' % data
    found = read_one(Record(text))
    assert isinstance(found, dict)
    assert found["data"] == data


def test_of_repeated_members_the_last_counts_and_of_repeated_headers_the_first() -> None:
    found = read_one(Record(b'{"source":"x","kind":"A","version":"0.7","data":1,"source":"hub1","data":2}'))
    assert isinstance(found, dict)
    assert (found["source"], found["data"]) == ("hub1", b"2")
    batch = batch_of([Record(b"{}")])
    twice = pa.array([[*DESCRIBED.items(), ("source", "other")]], RECORD_SCHEMA.field("headers").type)
    bundles, _ = read_bundles(batch.set_column(7, RECORD_SCHEMA.field("headers"), twice), KINDS)
    assert bundles.column("source").to_pylist() == ["hub1"]


def test_depth_and_size_do_no_harm() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    wide = b"[" + b"1," * 2_000_000 + b"1]"
    for data in (deep, wide, b"9" * 1_000_000):
        found = read_one(Record(b'{"source":"hub1","kind":"A","version":"0.7","data":%b}' % data))
        assert isinstance(found, dict)
        assert found["data"] == data
    assert read_one(Record(b'{"source":' + b"[" * 100_000))[0] == "bad_bundle"  # type: ignore[index]


records = st.lists(
    st.tuples(
        st.sampled_from([*GOOD, *(members for members, _, _ in BAD)]),
        st.booleans(),
        st.binary(max_size=3) | st.none(),
    ),
    max_size=12,
)


@given(records, st.integers(0, 3))
def test_a_batch_tells_what_its_records_tell_one_by_one(
    found: list[tuple[Mapping[str, str], bool, bytes | None]], cut: int
) -> None:
    all_of_it = [
        described(members, data) if by_headers else envelope(members) if data is not None else Record(data)
        for members, by_headers, data in found
    ]
    whole = batch_of(all_of_it)
    bundles, failures = read_bundles(whole.slice(cut), KINDS)
    parts = [read_bundles(whole.slice(row, 1), KINDS) for row in range(cut, whole.num_rows)]
    assert bundles.to_pylist() == [row for good, _ in parts for row in good.to_pylist()], "in the order of the log"
    by_offset = sorted(failures.to_pylist(), key=lambda row: row["offset"])
    assert by_offset == [row for _, bad in parts for row in bad.to_pylist()]


def test_time_to_read_headers_grows_with_the_records_and_not_with_their_square() -> None:
    count = 100_000
    batch = batch_of([described({**DESCRIBED, "version": f"0.{row}"}) for row in range(count)])
    read_bundles(batch.slice(0, 10), KINDS)
    began = time.process_time()
    bundles, failures = read_bundles(batch, KINDS)
    took = time.process_time() - began
    assert (bundles.num_rows, failures.num_rows) == (count, 0)
    assert took < 20, "it takes a fraction of a second"
