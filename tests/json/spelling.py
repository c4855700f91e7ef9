"""Random JSON as text: with repeated keys, odd numbers, escapes and whitespace, as it really comes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hypothesis import strategies as st

KEYS = st.sampled_from(["a", "b", "A", "a_b", "", "é", "k" * 9, 'q"', "\\", "\0", "x/y", "~", "\ud800"])
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-5, 5).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    st.sampled_from(
        [
            "-0",
            "0.0",
            "1e5",
            "1E-7",
            "1e400",
            "1e22",
            "1.5e300",
            "9007199254740993",
            "-9223372036854775808",
            "9223372036854775807",
            "9223372036854775808",
            "0.1234567890123456789",
            "123456789.0e-3",
        ]
    ),
)
STRINGS = st.one_of(
    st.text(max_size=12),
    st.text(st.sampled_from(['"', "\\", "/", "\n", "\0", "é", "😀", "\ud800", "\udc00", "x"]), max_size=12),
    st.text("abcdefgh ", min_size=6, max_size=40),
)


@dataclass(frozen=True)
class Spelled:
    """A number or a word as it stands in the document."""

    text: str


@dataclass(frozen=True)
class Members:
    """An object that may repeat keys."""

    pairs: tuple[tuple[str, object], ...]


SCALARS = st.one_of(
    STRINGS, NUMBERS.map(Spelled), st.sampled_from([Spelled("true"), Spelled("false"), Spelled("null")])
)


def objects(values: st.SearchStrategy[object]) -> st.SearchStrategy[Members]:
    return st.lists(st.tuples(KEYS, values), max_size=6).map(lambda pairs: Members(tuple(pairs)))


VALUES: st.SearchStrategy[object] = st.recursive(
    SCALARS, lambda inner: st.one_of(objects(inner), st.lists(inner, max_size=4)), max_leaves=12
)


def spell(value: object, space: str, ascii_only: bool) -> str:
    """The text of a value, with ``space`` between tokens."""
    if isinstance(value, Spelled):
        return value.text
    if isinstance(value, str):
        # A lone surrogate can only be written as an escape.
        plain = not ascii_only and not any("\ud800" <= c <= "\udfff" for c in value)
        return json.dumps(value, ensure_ascii=not plain)
    if isinstance(value, Members):
        inside = f"{space},{space}".join(
            f"{spell(key, space, ascii_only)}{space}:{space}{spell(inner, space, ascii_only)}"
            for key, inner in value.pairs
        )
        return f"{{{space}{inside}{space}}}"
    assert isinstance(value, list)
    return f"[{space}" + f"{space},{space}".join(spell(inner, space, ascii_only) for inner in value) + f"{space}]"


SPACES = st.sampled_from(["", " ", "\n\t", " \r\n "])
DOCUMENTS: st.SearchStrategy[bytes] = st.builds(
    lambda value, space, ascii_only: (space + spell(value, space, ascii_only) + space).encode(),
    objects(VALUES),
    SPACES,
    st.booleans(),
)
"""Well-formed documents: one object each."""


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A document with a few bytes cut out, changed or put in; it may still be well-formed."""
    document = bytearray(draw(DOCUMENTS))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(document)))
        piece = draw(
            st.sampled_from(
                [
                    b"",
                    b",",
                    b"}",
                    b"]",
                    b"{",
                    b"[",
                    b'"',
                    b"\\",
                    b"0",
                    b".",
                    b"e",
                    b"-",
                    b":",
                    b" ",
                    b"\0",
                    b"\xff",
                    b"\xc3",
                    b"\xed\xa0\x80",
                    b"\xc3\xa9",
                    b"nul",
                    b"NaN",
                    b"\\u12",
                    b"1",
                ]
            )
        )
        document[place : place + draw(st.integers(0, 2))] = piece
    return bytes(document)
