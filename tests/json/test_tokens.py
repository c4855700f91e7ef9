"""What counts as JSON, and where a value ends."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given

from penstock.json.containers import skip_value
from penstock.json.documents import documents
from penstock.json.leaves import leaves
from penstock.json.strings import unescape
from penstock.json.tokens import Kind, skip_whitespace, string_end, value_kind
from tests.json.reference import as_text, reads
from tests.json.spelling import STRINGS, VALUES, damaged, spell


def buffer(text: str | bytes) -> np.ndarray:
    return documents(pa.array([text.encode() if isinstance(text, str) else text], pa.binary())).buffer


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("null", Kind.NULL),
        ("true", Kind.TRUE),
        ("false", Kind.FALSE),
        ("0", Kind.INT),
        ("-12", Kind.INT),
        ("123456789012345678901234567890", Kind.INT),
        ("1.0", Kind.FLOAT),
        ("1e5", Kind.FLOAT),
        ("-1E-5", Kind.FLOAT),
        ('""', Kind.STRING),
        ('"a\\"b\\\\"', Kind.STRING),
        ('"12345678\\u0000 é😀 1.5"', Kind.STRING),
        ("[]", Kind.ARRAY),
        ('[1, {"a": []}]', Kind.ARRAY),
        ("{}", Kind.OBJECT),
        ('{"a": {"b": [1, 2, {"c": "}"}]}, "d": 1}', Kind.OBJECT),
        ("[" * 62 + "]" * 62, Kind.ARRAY),
        ("[" * 63 + "]" * 63, Kind.ARRAY),
        ("[" * 64 + "{}" + "]" * 64, Kind.ARRAY),
        ('{"a":[' * 5_000 + "1" + "]}" * 5_000, Kind.OBJECT),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else value.name,
)
def test_a_value_ends_where_it_ends_and_has_its_kind(text: str, kind: Kind) -> None:
    for after in ("", " ", ",", "]"):
        buf = buffer(text + after)
        end = skip_value(buf, 0, len(buf))
        assert end == len(text.encode())
        assert value_kind(buf, 0, end) == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nul",
        "tru",
        "fals",
        "True",
        "NaN",
        "Infinity",
        "-",
        "+1",
        ".5",
        "1.",
        "1.e5",
        "1e",
        "1e+",
        "-a",
        '"',
        '"a',
        '"\\',
        '"\\x"',
        '"\\u12g4"',
        '"\\u12',
        '"a\nb"',
        '"\x00"',
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{",
        '{"a"',
        '{"a":',
        '{"a":1',
        '{"a":1,',
        '{"a":1,}',
        '{"a" 1}',
        '{"a"}',
        "{1:2}",
        '{"a":1]',
        "{,}",
        "[" * 100,
        "[" * 100 + "}",
        "'a'",
        "[" * 70 + "]" * 69 + "}",
        '{"a":' * 70 + "1" + "]" * 70,
    ],
)
def test_what_is_not_json_is_refused(text: str) -> None:
    buf = buffer(text)
    assert skip_value(buf, 0, len(buf)) == -1


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80",
        b"\xff",
        b"\xc3",
        b"\xc0\x80",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf0\x80\x80\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
    ],
)
def test_a_string_that_is_not_utf_8_is_refused(raw: bytes) -> None:
    for padding in (b"", b"12345678"):
        buf = buffer(b'"' + padding + raw + b'"')
        assert string_end(buf, 0, len(buf)) < 0


def test_nothing_after_the_end_is_looked_at() -> None:
    buf = buffer('"abc"123')
    assert string_end(buf, 0, 4) < 0
    assert skip_value(buf, 5, 7) == 7
    assert skip_whitespace(buffer("   x"), 0, 2) == 2


@given(VALUES)
def test_every_value_is_stepped_over(value: object) -> None:
    text = spell(value, " ", ascii_only=False)
    buf = buffer(text)
    assert skip_value(buf, 0, len(buf)) == len(buf)


@given(STRINGS)
def test_a_string_means_what_python_reads(value: str) -> None:
    for spelled in (json.dumps(value), spell(value, "", ascii_only=False)):
        buf = buffer(spelled)
        out = np.zeros(len(buf), np.uint8)
        stop = unescape(buf, 1, len(buf) - 1, out, 0)
        assert bytes(out[:stop]).decode() == as_text(json.loads(spelled))


@given(damaged())
@example(b'\xef\xbb\xbf{"a":1}')
@example(b'{"a":01}')
@example(b'{"a":1}\0')
def test_a_document_is_taken_exactly_when_python_takes_it(document: bytes) -> None:
    assert bool(leaves(pa.array([document], pa.binary())).problems) == (reads(document) is None)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_slices_and_nulls_keep_their_places(kind: pa.DataType) -> None:
    array = pa.array(["{}", None, '{"a":1}', "x"], kind)
    docs = documents(array[1:])
    assert docs.valid.tolist() == [False, True, True]
    texts = [bytes(docs.buffer[a:b]) for a, b in zip(docs.offsets[:-1], docs.offsets[1:], strict=True)]
    assert texts == [b"", b'{"a":1}', b"x"]
    assert len(documents(array[:0])) == 0
    assert len(documents(pa.chunked_array([array, array[:1]]))) == 5


def test_other_arrays_are_refused() -> None:
    with pytest.raises(TypeError, match="int64"):
        documents(pa.array([1]))
