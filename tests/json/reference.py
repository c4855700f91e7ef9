"""The slow and obvious way to read JSON, on top of Python's own parser: what the scanners are compared with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_DECODER = json.JSONDecoder(strict=True)
_SPACE = re.compile(r"[ \t\r\n]*")
_STRING_OR_SPACE = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+')


def reads(document: bytes) -> str | None:
    """The text of a document that is one well-formed JSON object; None for any other."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        text = document.decode("utf-8-sig")
        value = json.loads(text, parse_constant=refuse, parse_int=str)
    except ValueError:
        return None
    return text if isinstance(value, dict) else None


def members(text: str) -> Iterator[tuple[str, str]]:
    """The members of a well-formed object: keys as text, values as they are spelled."""
    place = _after_space(text, _after_space(text, 0) + 1)
    while text[place] != "}":
        key, place = _DECODER.raw_decode(text, place)
        place = _after_space(text, _after_space(text, place) + 1)
        _, end = _DECODER.raw_decode(text, place)
        yield as_text(key), text[place:end]
        place = _after_space(text, end)
        if text[place] == ",":
            place = _after_space(text, place + 1)


def last_members(text: str) -> dict[str, str]:
    """Members with the last value of each key, in the order of those last values."""
    found: dict[str, str] = {}
    for key, value in members(text):
        found.pop(key, None)
        found[key] = value
    return found


def leaves(text: str, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Paths and spelled values of everything that is neither an object nor null."""
    for key, value in last_members(text).items():
        if value.startswith("{"):
            yield from leaves(value, (*above, key))
        elif value != "null":
            yield (*above, key), value


def every_leaf(
    text: str, above: tuple[str, ...] = (), kept: bool = True
) -> Iterator[tuple[tuple[str, ...], str, bool]]:
    """The same with those whose key comes again, in the order of the text, and whether each is the one that counts."""
    found = list(members(text))
    last = {key: place for place, (key, _) in enumerate(found)}
    for place, (key, value) in enumerate(found):
        counts = kept and last[key] == place
        if value.startswith("{"):
            yield from every_leaf(value, (*above, key), counts)
        elif value != "null":
            yield (*above, key), value, counts


def as_text(string: str) -> str:
    """A decoded string with lone surrogates as their escapes."""
    return re.sub("[\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", string)


def compact(spelled: str) -> str:
    return _STRING_OR_SPACE.sub(lambda match: match[1] or "", spelled)


def _after_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    assert match is not None
    return match.end()
