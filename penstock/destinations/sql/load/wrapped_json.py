"""Wraps JSON that an engine's own JSON type would change or refuse: keeps it whole as text under the key ``""``.

Such a type reads numbers into doubles, limits the length of strings, or keeps only one value of a repeated key. JSON
that would not come back as it was is stored as text instead: ``{"a":1e400}`` becomes ``{"":"{\\"a\\":1e400}"}``. Text
that is too long for one string is cut: ``{"":["...","..."]}``, to be joined in this order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.sql.load.readable_json import keeps_its_shape

_DOUBTFUL = r"[0-9.]{16,}|[0-9][eE]|[\[,:]\s*\{"
"""Without a match, every number is short enough for a double to keep it, and no value holds an object."""


def wrap_lossy_json(text: pa.Array, max_string: int | None = None, decimal_digits: int = 0) -> pa.Array:
    """The objects, wrapped where the engine would not keep a number, a string of more than ``max_string`` bytes or a
    repeated key. It keeps numbers that doubles keep, and those of up to ``decimal_digits`` plain digits."""
    doubtful = pc.match_substring_regex(text, _DOUBTFUL)
    if max_string is not None:
        doubtful = pc.or_(doubtful, pc.greater(pc.binary_length(text), max_string))
    doubtful = pc.fill_null(doubtful, False)
    if not pc.any(doubtful).as_py():
        return text
    kept = [
        value if _round_trips(value, max_string, decimal_digits) else _wrap(value, max_string)
        for value in text.filter(doubtful).to_pylist()
    ]
    return pc.replace_with_mask(text, doubtful, pa.array(kept, text.type))


def split_text(text: str, max_bytes: int) -> list[str]:
    """The text in parts of at most so many bytes of UTF-8; whole characters each."""
    data = text.encode()
    found: list[str] = []
    start = 0
    while start < len(data):
        end = min(start + max_bytes, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        found.append(data[start:end].decode())
        start = end
    return found


def _wrap(value: str, max_string: int | None) -> str:
    cut = [value] if max_string is None else split_text(value, max_string)
    return orjson.dumps({"": cut[0] if len(cut) == 1 else cut}).decode()


def _round_trips(value: str, max_string: int | None, decimal_digits: int) -> bool:
    numbers: list[str] = []

    def keep(spelling: str) -> int:
        numbers.append(spelling)
        return 0

    try:
        found = json.loads(value, parse_int=keep, parse_float=keep)
        strings = [] if max_string is None else [len(string.encode()) for string in _strings(found)]
    except RecursionError:
        return False  # so deep that the engine would refuse it too
    kept = all(_is_kept(number, decimal_digits) for number in numbers)
    return kept and max(strings, default=0) <= (max_string or 0) and keeps_its_shape(value)


def _is_kept(number: str, decimal_digits: int) -> bool:
    if sum(map(str.isdigit, number)) <= decimal_digits and "e" not in number.lower():
        return True
    if number.lstrip("-").isdigit() and -(2**63) <= int(number[:21]) < 2**63 and len(number) <= 20:
        return True
    double = float(number)
    return abs(double) != float("inf") and Decimal(repr(double)) == Decimal(number)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _strings(item)
