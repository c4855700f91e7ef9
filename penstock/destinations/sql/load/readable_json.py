"""Turns JSON into JSON that engines can read. What they cannot read is kept as text in its place, never dropped.

Engines with a JSON type refuse some of what JSON allows: half a surrogate pair, U+0000 where text cannot hold it, a
number of thousands of digits. Such a character becomes the text of its escape (``\\ud800``), such a number a string of
its digits; everything around them stays as it was written. A member that is still not readable, or of which the engine
would drop something (a repeated key of an object), becomes a string that holds its JSON. If members then share a name,
the later ones get a ``#`` after it.
"""

from __future__ import annotations

import json
import re

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.json.merge import all_members_of


def readable_json(texts: pa.Array, takes_nul: bool, keeps_repeats: bool = True) -> pa.Array:
    """Readable JSON texts; objects keep their members, each under its own name. ``keeps_repeats`` says whether the
    engine's type keeps a repeated key of an object."""
    odd = pc.or_(pc.match_substring_regex(texts, r"\\u|[eE][+-]?[0-9]{5}"), pc.greater(pc.binary_length(texts), _LONG))
    if not keeps_repeats:
        odd = pc.or_(odd, pc.match_substring_regex(texts, r"[\[,:]\s*\{"))
    doubtful = pc.fill_null(odd, False)
    if not pc.any(doubtful).as_py():
        return texts
    # Row by row: few rows have anything in _unmapped, and few of those are odd.
    readable = [_make_readable(text, takes_nul, keeps_repeats) for text in texts.filter(doubtful).to_pylist()]
    return pc.replace_with_mask(texts, doubtful, pa.array(readable, texts.type))


def keeps_its_shape(text: str, keeps_repeats: bool = False) -> bool:
    """Whether well-formed JSON is not so deep that an engine may refuse it, and no object in it repeats a key."""
    repeated = False

    def look(pairs: list[tuple[str, object]]) -> None:
        nonlocal repeated
        repeated = repeated or len({name for name, _ in pairs}) < len(pairs)

    try:
        json.loads(text, object_pairs_hook=look, parse_int=str, parse_float=str)
    except RecursionError:
        return False
    return keeps_repeats or not repeated


def _make_readable(text: str, takes_nul: bool, keeps_repeats: bool) -> str:
    text = _TOKENS.sub(lambda found: _token(found[0], takes_nul), text)
    if keeps_its_shape(text, keeps_repeats):
        return text
    if not text.lstrip().startswith("{"):
        return _as_string(text)
    kept: dict[str, str] = {}
    for spelled, member in all_members_of(text.encode()):
        name, value = json.loads(spelled), member.decode()
        while name in kept:
            name += "#"  # two names that differ in what the engine cannot hold, or one that came twice
        kept[name] = value if keeps_its_shape(value, keeps_repeats) else _as_string(value)
    return "{" + ",".join(f"{_as_string(name)}:{value}" for name, value in kept.items()) + "}"


def _as_string(text: str) -> str:
    return orjson.dumps(text).decode()


def _token(token: str, takes_nul: bool) -> str:
    """A string or a number as the engine can read it."""
    if token.startswith('"'):
        return _ESCAPES.sub(lambda found: found[0] if _is_character(found[0], takes_nul) else f"\\{found[0]}", token)
    return f'"{token}"' if _is_huge(token) else token


def _is_huge(number: str) -> bool:
    """Whether an engine that counts digits, including those of an exponent, may refuse it."""
    digits, _, exponent = number.lower().partition("e")
    power = exponent.lstrip("+-").lstrip("0")
    return len(power) > len(str(_LONG)) or len(digits) + int(power or 0) > _LONG


def _is_character(escape: str, takes_nul: bool) -> bool:
    return _HALF.fullmatch(escape) is None and (takes_nul or escape != _NUL)


_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*')
"""Numbers, and strings, so that nothing inside a string is mistaken for a number."""
_NUL = "\\u0000"
_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_ESCAPES = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.")
"""A whole pair first, so that its halves do not match as single ones."""
_LONG = 16_000
"""Digits up to which every engine keeps a number."""
