"""JSON that engines can read. What they cannot is kept as text in its place, never dropped.

Engines with a JSON type refuse some of what JSON allows: half a surrogate pair, U+0000 where text cannot hold it, a
number of thousands of digits. Such a character becomes the text of its escape (``\\ud800``), and a value that is still
not readable becomes a string that holds its JSON.
"""

from __future__ import annotations

import re

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.json.merge import members_of


def readable_json(texts: pa.Array, takes_nul: bool) -> pa.Array:
    """JSON texts, of which objects keep their members, each under its own name."""
    odd = pc.or_(pc.match_substring_regex(texts, r"\\u|[eE][+-]?[0-9]{5}"), pc.greater(pc.binary_length(texts), _LONG))
    doubtful = pc.fill_null(odd, False)
    if not pc.any(doubtful).as_py():
        return texts
    # Row by row: few rows keep anything aside, and few of those are odd.
    mended = [_mended(text, takes_nul) for text in texts.filter(doubtful).to_pylist()]
    return pc.replace_with_mask(texts, doubtful, pa.array(mended, texts.type))


def _mended(text: str, takes_nul: bool) -> str:
    if _is_readable(text, takes_nul):
        return text
    if not text.lstrip().startswith("{"):
        return _readable(text, takes_nul)
    members = (
        (_readable(name.decode(), takes_nul), _readable(value.decode(), takes_nul))
        for name, value in members_of(text.encode()).values()
    )
    return "{" + ",".join(f"{name}:{value}" for name, value in members) + "}"


def _readable(value: str, takes_nul: bool) -> str:
    """A value that the engine can read, for one that it perhaps cannot."""
    if not _is_readable(value, takes_nul):
        value = _ESCAPES.sub(lambda found: found[0] if _is_character(found[0], takes_nul) else f"\\{found[0]}", value)
    return value if _is_readable(value, takes_nul) else orjson.dumps(value).decode()


def _is_character(escape: str, takes_nul: bool) -> bool:
    return _HALF.fullmatch(escape) is None and (takes_nul or escape != _NUL)


def _is_readable(value: str, takes_nul: bool) -> bool:
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        return False
    return (takes_nul or _NUL not in _ESCAPES.findall(value)) and _HUGE_NUMBER.search(value) is None


_NUL = "\\u0000"
_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_ESCAPES = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.")
"""A whole pair first, so that its halves are not taken for single ones."""
_LONG = 16_000
"""Bytes below which no number has too many digits for an engine that counts them."""
_HUGE_NUMBER = re.compile(r"[eE][+-]?[0-9]{5}|[0-9]{16000}")
