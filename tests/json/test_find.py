"""Where wanted paths lie."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.json.find import Found, find
from penstock.json.tokens import Kind
from tests.json.reference import last_members, reads
from tests.json.spelling import DOCUMENTS, damaged

PATHS = [(), ("a",), ("a", "b"), ("a", "b", "a"), ("b",), ("é",), ("",), ("missing",), ("a",)]


def value(found: Found, record: int, path: int) -> str | None:
    if found.kind[record, path] == Kind.ABSENT:
        assert found.value_start[record, path] == found.value_end[record, path] == -1
        assert found.member_start[record, path] == found.member_end[record, path] == -1
        return None
    return bytes(found.buffer[found.value_start[record, path] : found.value_end[record, path]]).decode()


def member(found: Found, record: int, path: int) -> str:
    return bytes(found.buffer[found.member_start[record, path] : found.member_end[record, path]]).decode()


def expected(text: str, path: tuple[str, ...]) -> str | None:
    for key in path:
        if not text.startswith("{"):
            return None
        inside = last_members(text)
        if key not in inside:
            return None
        text = inside[key]
    return text


@given(st.lists(st.one_of(DOCUMENTS, damaged(), st.none()), max_size=4))
def test_every_path_is_found_where_python_finds_it(documents: list[bytes | None]) -> None:
    found = find(pa.array(documents, pa.binary()), PATHS)
    for record, document in enumerate(documents):
        text = None if document is None else reads(document)
        assert found.valid[record] == (text is not None)
        for place, path in enumerate(PATHS):
            assert value(found, record, place) == (None if text is None else expected(text.strip(), path))


@pytest.mark.parametrize(
    ("document", "path", "kind", "spelled"),
    [
        (' { "a" : 1 } ', ("a",), Kind.INT, '"a" : 1'),
        ('{"a":{"b":[1, 2]}}', ("a", "b"), Kind.ARRAY, '"b":[1, 2]'),
        ('{"\\u0061":null}', ("a",), Kind.NULL, '"\\u0061":null'),
        ('{"a":1,"a":{"b":true}}', ("a", "b"), Kind.TRUE, '"b":true'),
        ('{"a":{"b":1.0},"c":"x"}', ("a",), Kind.OBJECT, '"a":{"b":1.0}'),
        ('{"x":{"a":{"b":9}}}', ("a", "b"), Kind.ABSENT, ""),
        ('{"a":[{"b":9}]}', ("a", "b"), Kind.ABSENT, ""),
        ('{"a":{"b":1},"a":2}', ("a", "b"), Kind.ABSENT, ""),
    ],
)
def test_a_member_is_its_key_and_its_value(document: str, path: tuple[str, ...], kind: Kind, spelled: str) -> None:
    found = find(pa.array(["{}", document], pa.string()), [("zzz",), path])
    assert found.kind[1, 1] == kind
    assert kind is Kind.ABSENT or member(found, 1, 1) == spelled


def test_a_broken_document_says_where_and_others_go_on() -> None:
    found = find(pa.array([b'{"a":1', b'{"a":2}', b"[1]", None, b'{"a":x}']), [("a",)])
    assert found.valid.tolist() == [False, True, False, False, False]
    assert (found.broken_at - found.offsets[:-1])[[0, 2, 4]].tolist() == [6, 0, 5]
    assert value(found, 1, 0) == "2"


def test_a_long_key_with_escapes_is_found() -> None:
    key = "é" * 5_000
    found = find(pa.array([('{"' + "\\u00e9" * 5_000 + '":1}').encode()]), [(key,)])
    assert value(found, 0, 0) == "1"


def test_no_paths_checks_the_documents_alone() -> None:
    found = find(pa.array([b"{}", b"{"]), [])
    assert found.valid.tolist() == [True, False]
    assert found.kind.shape == (2, 0)
