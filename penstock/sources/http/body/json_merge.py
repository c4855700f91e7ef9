"""Merges two JSON objects by cutting and joining their texts: what is kept stays byte for byte.

``filled`` gives an object what it lacks of another (a template, the shared part of a batch). ``overlaid`` puts values
over an object (the query of a pixel). Where both sides have an object under a key, those are merged likewise; a null is
a value like any other. All texts have been accepted by ``parse`` and have no whitespace around them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from penstock.sources.json_text import Branch, Json, NotJson, members, tree

MAX_SHARED_LEVELS = 64

Tree = dict[str, "Tree | str"]
"""Values at paths."""


@dataclass(frozen=True, slots=True)
class Filler:
    """An object to fill others with, parsed once. The last value of a repeated key counts."""

    text: bytes
    members: Mapping[str, Branch]

    @classmethod
    def of(cls, text: bytes) -> Self:
        return cls(text, tree(text, MAX_SHARED_LEVELS + 1))


def filled(event: bytes, value: Mapping[str, Json], filler: Filler) -> bytes:
    """``event`` (whose value is ``value``) with the members of ``filler`` that it lacks."""
    missing: list[bytes] = []
    for key, member in filler.members.items():
        if key not in value:
            missing.append(filler.text[member.start : member.value.end])
        elif isinstance(value[key], dict) and filler.text.startswith(b"{", member.value.start):
            return _filled(event, filler)
    if not missing:
        return event
    return b"%b%b%b}" % (event[:-1].rstrip(), b"," if value else b"", b",".join(missing))


def overlaid(event: bytes, changes: Tree) -> bytes:
    """``event`` with ``changes`` applied. They replace what is at their paths; new keys go to the end."""
    own = members(event)
    last = {member.key: member for member in own}
    texts: list[bytes] = []
    for member in own:
        change = changes.get(member.key)
        if change is None:
            texts.append(event[member.start : member.value.end])
        elif last[member.key] is member:  # of a repeated key, only the last counts for a reader
            head, old = event[member.start : member.value.start], event[member.value.start : member.value.end]
            merged = overlaid(old, change) if isinstance(change, dict) and old.startswith(b"{") else _text(change)
            texts.append(head + merged)
    texts += [b"%b:%b" % (_text(key), _text(change)) for key, change in changes.items() if key not in last]
    return b"{%b}" % b",".join(texts)


def without(event: bytes, key: str) -> bytes:
    """``event`` without the member ``key``, however often it is there."""
    kept = [event[member.start : member.value.end] for member in members(event) if member.key != key]
    return b"{%b}" % b",".join(kept)


def _filled(event: bytes, filler: Filler) -> bytes:
    """One pass over both trees: the cost depends on their texts, not on how deep they overlap."""
    pieces: list[bytes] = []
    done = 0
    for place, missing in _gaps(event, filler, tree(event, MAX_SHARED_LEVELS + 1)):
        pieces += [event[done:place], missing]
        done = place
    return b"".join([*pieces, event[done:]])


def _gaps(event: bytes, filler: Filler, own: Mapping[str, Branch]) -> list[tuple[int, bytes]]:
    """The insertions, in order: where and what."""
    found: list[tuple[int, bytes]] = []
    shared: list[tuple[Mapping[str, Branch], Mapping[str, Branch], int, int]] = [
        (filler.members, own, len(event) - 1, 0)
    ]
    while shared:
        theirs, mine, close, level = shared.pop()
        if level >= MAX_SHARED_LEVELS:
            raise NotJson(f"what fills and what is filled share more than {MAX_SHARED_LEVELS} levels of objects")
        missing: list[bytes] = []
        for key, branch in theirs.items():
            known = mine.get(key)
            if known is None:
                missing.append(filler.text[branch.start : branch.value.end])
            elif event.startswith(b"{", known.value.start) and filler.text.startswith(b"{", branch.value.start):
                shared.append((branch.inner or {}, known.inner or {}, known.value.end - 1, level + 1))
        if missing:
            found.append((close, b"".join([b"," if mine else b"", b",".join(missing)])))
    return sorted(found)


def _text(value: Tree | str) -> bytes:
    # ASCII with escapes: a lone surrogate cannot be written otherwise.
    return json.dumps(value, separators=(",", ":")).encode()
