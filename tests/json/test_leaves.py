"""Every leaf of every document, once."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.json.document_problems import ProblemCode
from penstock.json.leaves import Leaves, fields, leaves
from penstock.json.tokens import Kind
from tests.json import reference
from tests.json.spelling import DOCUMENTS, damaged


def listed(found: Leaves) -> list[tuple[int, tuple[str, ...], str]]:
    return [
        (int(record), found.paths[column], bytes(found.documents.buffer[start:end]).decode())
        for record, column, start, end in zip(found.record, found.column, found.start, found.end, strict=True)
    ]


@given(st.lists(st.one_of(DOCUMENTS, damaged(), st.none()), max_size=5))
def test_leaves_are_those_that_python_finds(documents: list[bytes | None]) -> None:
    found = leaves(pa.array(documents, pa.binary()))
    expected = []
    for record, document in enumerate(documents):
        text = None if document is None else reference.reads(document)
        if text is not None:
            expected += [(record, path, value) for path, value in reference.leaves(text)]
    assert listed(found) == expected
    assert list(found.paths) == list(dict.fromkeys(path for _, path, _ in expected))


@given(st.lists(st.one_of(DOCUMENTS, damaged(), st.none()), max_size=5))
def test_fields_are_the_members_that_python_finds_whole_and_with_nulls(documents: list[bytes | None]) -> None:
    found = fields(pa.array(documents, pa.binary()))
    expected = []
    for record, document in enumerate(documents):
        text = None if document is None else reference.reads(document)
        if text is not None:
            expected += [(record, (key,), value) for key, value in reference.last_members(text).items()]
    assert listed(found) == expected


@pytest.mark.parametrize(
    ("document", "code", "position", "words"),
    [
        (None, ProblemCode.NO_DOCUMENT, 0, "no data"),
        ("", ProblemCode.NO_DOCUMENT, 0, "empty"),
        ("  ", ProblemCode.NO_DOCUMENT, 2, "empty"),
        ("[1]", ProblemCode.NOT_AN_OBJECT, 0, "an array"),
        (" 7", ProblemCode.NOT_AN_OBJECT, 1, "a number"),
        ("null", ProblemCode.NOT_AN_OBJECT, 0, "null"),
        ('{"a":1', ProblemCode.NOT_JSON, 6, "breaks off at byte 6"),
        ('{"a":nope}', ProblemCode.NOT_JSON, 5, "at byte 5"),
        ('{"a":1}{"b":2}', ProblemCode.NOT_JSON, 7, "at byte 7"),
        ("hello", ProblemCode.NOT_JSON, 0, "near 'hello'"),
    ],
)
def test_a_bad_document_is_explained_and_the_others_go_on(
    document: str | None, code: ProblemCode, position: int, words: str
) -> None:
    found = leaves(pa.array(['{"a":1}', document, '{"a":2}'], pa.string()))
    assert listed(found) == [(0, ("a",), "1"), (2, ("a",), "2")]
    (problem,) = found.problems
    assert (problem.record, problem.code, problem.position) == (1, code, position)
    assert words in problem.message


@pytest.mark.parametrize(
    ("document", "kept", "replaced"),
    [
        ('{"a":1,"a":2}', [(("a",), "2")], 1),
        ('{"a":{"b":1,"c":2},"a":3}', [(("a",), "3")], 2),
        ('{"a":3,"a":{"b":1}}', [(("a", "b"), "1")], 1),
        ('{"a":1,"\\u0061":2,"b":3,"a":4}', [(("b",), "3"), (("a",), "4")], 2),
        ('{"a":1,"a":null}', [], 1),
        ('{"a":{"b":1},"a":{"c":2}}', [(("a", "c"), "2")], 1),
        ('{"a":{"x":1},"b":{"x":2}}', [(("a", "x"), "1"), (("b", "x"), "2")], 0),
    ],
)
def test_the_last_of_repeated_keys_counts_and_the_others_are_counted(
    document: str, kept: list[tuple[tuple[str, ...], str]], replaced: int
) -> None:
    found = leaves(pa.array(['{"b":0}', document, document], pa.string()))
    assert [(path, value) for record, path, value in listed(found) if record == 1] == kept
    assert [(path, value) for record, path, value in listed(found) if record == 2] == kept
    assert len(found.replaced) == 2 * replaced


def test_deep_wide_and_long_documents_are_read() -> None:
    deep = '{"k":' * 1_000 + "1" + "}" * 1_000
    wide = json.dumps({f"key {n}": n for n in range(5_000)})
    long = json.dumps({"s": "x" * 1_000_000})
    found = leaves(pa.array([deep, wide, long, '{"a":[' + "[" * 500 + "]" * 500 + "]}"], pa.string()))
    assert not found.problems
    assert found.paths[0] == ("k",) * 1_000
    assert len(found.paths) == 1 + 5_000 + 1 + 1
    assert found.paths[1 + 4_321] == ("key 4321",)
    assert found.kind[-1] == Kind.ARRAY
    assert found.end[-2] - found.start[-2] == 1_000_002


def test_many_documents_that_are_all_different_are_read() -> None:
    documents = [json.dumps({f"k{n}": {f"x{n % 7}": n, "same": [n]}}) for n in range(2_000)]
    found = leaves(pa.array(documents, pa.string()))
    assert len(found.paths) == 4_000
    assert listed(found)[-2:] == [(1999, ("k1999", "x4"), "1999"), (1999, ("k1999", "same"), "[1999]")]


def test_no_documents_have_no_leaves() -> None:
    found = leaves(pa.array([], pa.binary()))
    assert found.paths == ()
    assert len(found.record) == 0
