"""Cuts an event that is too large alone: its attributes from the longest value down, until it fits.

The longest values are cut to one common length, the greatest that fits, so that what is lost is as little as possible
and short values stay whole. A text is cut between characters; any other value is replaced by the beginning of its JSON.
What was cut is said by the event itself.

Lengths are those of serialised bytes, whatever the escapes are, and every step is bounded: it always ends, and the time
grows with the event, however many attributes it has.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

TRIMMED = "penstock.trimmed"
"""The attribute that names what was cut, with the bytes that each value had."""

Attributes = Mapping[str, object]


class TooLarge(Exception):
    """What is left of an event without any of its values is still too large."""


def trim_attributes(attributes: Attributes, most: int) -> dict[str, object]:
    """The attributes, in no more than ``most`` bytes of JSON. Raises ``TooLarge``."""
    whole = len(orjson.dumps(attributes))
    if whole <= most:
        return dict(attributes)
    # One that has come with an event speaks of an earlier cut; there is room for one.
    attributes = {name: value for name, value in attributes.items() if name != TRIMMED}
    lengths = {name: len(orjson.dumps(value)) for name, value in attributes.items()}
    longest_first = sorted(lengths, key=lambda name: -lengths[name])
    least = len(orjson.dumps({**attributes, TRIMMED: {}}))
    for count, name in enumerate(longest_first, 1):
        least += len(orjson.dumps({name: lengths[name]})) - len("{}") + (count > 1) - (lengths[name] - len('""'))
        room = (most - least) // count
        # While the next one is longer than what these are cut to, it is cut, too.
        following = lengths[longest_first[count]] if count < len(longest_first) else 0
        if least <= most and (room + 2 >= following or count == len(longest_first)):
            return _with_cut_values(attributes, {each: lengths[each] for each in longest_first[:count]}, most - least)
    raise TooLarge


def _with_cut_values(attributes: Attributes, cut: Mapping[str, int], room: int) -> dict[str, object]:
    """``room``: the bytes that all values that are cut may have together, without their quotes."""
    trimmed: dict[str, object] = dict(attributes)
    left = room
    # The shortest first: what one of them does not need, longer ones have.
    for number, name in enumerate(sorted(cut, key=lambda name: cut[name])):
        value = cut_text(_text(attributes[name]), left // (len(cut) - number))
        left -= len(orjson.dumps(value)) - 2
        trimmed[name] = value
    trimmed[TRIMMED] = dict(cut)
    return trimmed


def cut_text(text: str, most: int) -> str:
    """The longest beginning of a text whose JSON has at most ``most`` bytes between its quotes."""
    # No character has less than one byte, and no text is looked at further than can fit.
    low, high = 0, min(len(text), most)
    while low < high:
        middle = (low + high + 1) // 2
        if len(orjson.dumps(text[:middle])) - 2 <= most:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def _text(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
