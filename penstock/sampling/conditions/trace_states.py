"""W3C trace states: what a member of them says.

https://www.w3.org/TR/trace-context-1/#tracestate-header
"""

from __future__ import annotations

import pyarrow as pa

from penstock.sampling.conditions.distinct_texts import map_distinct

MOST_MEMBERS = 32
LONGEST_VALUE = 256

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_LETTERS_AND_DIGITS = _LETTERS | frozenset("0123456789")
_KEY_CHARACTERS = _LETTERS_AND_DIGITS | frozenset("_-*/")
_VALUE_CHARACTERS = frozenset(map(chr, range(0x20, 0x7F))) - frozenset(",=")


def trace_state_values(texts: pa.StringArray, key: str) -> pa.StringArray:
    """The value of the member ``key`` of each; empty where there is no such member, null where a text is malformed."""

    def value(text: str) -> str | None:
        members = parse_trace_state(text)
        return None if members is None else members.get(key, "")

    return map_distinct(texts, value)


def parse_trace_state(text: str) -> dict[str, str] | None:
    """The members of a trace state by their keys; None if it is malformed, as a whole: one bad member spoils it."""
    members: dict[str, str] = {}
    for member in text.split(","):
        if not member.strip(" \t"):
            continue
        key, equals, value = member.partition("=")
        key, value = key.lstrip(" \t"), value.rstrip(" \t")
        if not equals or not _is_key(key) or not _is_value(value) or key in members or len(members) == MOST_MEMBERS:
            return None
        members[key] = value
    return members


def _is_key(key: str) -> bool:
    tenant, at, system = key.partition("@")
    if not at:
        return _is_word(key, _LETTERS, 256)
    return _is_word(tenant, _LETTERS_AND_DIGITS, 241) and _is_word(system, _LETTERS, 14)


def _is_word(text: str, first: frozenset[str], longest: int) -> bool:
    return 0 < len(text) <= longest and text[0] in first and _KEY_CHARACTERS.issuperset(text)


def _is_value(value: str) -> bool:
    return 0 < len(value) <= LONGEST_VALUE and _VALUE_CHARACTERS.issuperset(value)
