"""Puts values into the objects of a batch, by spans: every byte that is not replaced stays as it was.

``put`` replaces the value at a path or adds the member at the end of its object, and creates the objects on the way. If
a path leads through a value that is not an object, the row is blocked. (A null on the way is replaced by an object.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.json.arrow_text import Flags, arrow_array, copy_bytes, offsets_of_lengths, quoted
from penstock.json.documents import documents
from penstock.json.find import Found, Spans, find
from penstock.json.paths import Path
from penstock.json.tokens import ABSENT, NULL, OBJECT, OPEN_OBJECT


@dataclass(frozen=True)
class Put:
    """The new documents, and per row the depth of the path at which it was blocked (-1: it was not)."""

    data: pa.BinaryArray
    blocked_at: Spans


def path_prefixes(path: Path) -> list[Path]:
    """The document, the objects on the way, and the path itself: what ``put`` must look up."""
    return [path[:depth] for depth in range(len(path) + 1)]


def put(data: pa.BinaryArray, path: Path, values: pa.BinaryArray, found: Found | None = None) -> Put:
    """The documents with ``values`` (JSON text, one per row) at ``path``; a null value leaves its row alone.

    Rows that are not JSON objects, and blocked ones, come back as they were. ``found`` is the result of ``find`` for
    ``path_prefixes(path)``, if the caller has it already.
    """
    found = find(data, path_prefixes(path)) if found is None else found
    places = _places(found, len(path), documents(values).valid)
    new, before, after = map(_texts, (values, *_templates(path)))
    offsets = offsets_of_lengths(np.diff(found.offsets) + _growth(places, new, before, after))
    out = np.empty(offsets[-1], np.uint8)
    _splice(_Texts(found.buffer, found.offsets), places, new, before, after, out)
    return Put(arrow_array(pa.binary(), out, offsets, documents(data).valid), places.blocked_at)


def wrap_values(values: pa.BinaryArray, path: Path) -> pa.BinaryArray:
    """A new document for each value (JSON text), with only that value, at ``path``. Nulls stay null."""
    docs = documents(values)
    opening = b"{" + b":{".join(map(quoted, path)) + b":"
    offsets = offsets_of_lengths(np.where(docs.valid, np.diff(docs.offsets) + len(opening) + len(path), 0))
    out = np.empty(offsets[-1], np.uint8)
    _wrap(docs.buffer, docs.offsets, docs.valid, np.frombuffer(opening, np.uint8), len(path), out)
    return arrow_array(pa.binary(), out, offsets, docs.valid)


class _Texts(NamedTuple):
    """The documents of an array, end to end."""

    buffer: Bytes
    offsets: Spans


def _texts(array: pa.BinaryArray) -> _Texts:
    docs = documents(array)
    return _Texts(docs.buffer, docs.offsets)


class _Places(NamedTuple):
    """Per row, the span to replace and the template that goes around the value (-1: the row is left alone)."""

    start: Spans
    end: Spans
    template: npt.NDArray[np.int64]
    blocked_at: Spans


def _templates(path: Path) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """The text before and after a new value: 0 is nothing; then three for each depth of the existing object.

    The three: added after other members, added to an empty object, in place of a null.
    """
    before, after = [b""], [b""]
    for depth in range(len(path)):
        opening = b":{".join(map(quoted, path[depth:])) + b":"
        closing = b"}" * (len(path) - depth - 1)
        before += [b"," + opening, opening, b"{" + opening]
        after += [closing, closing, closing + b"}"]
    return pa.array(before, pa.binary()), pa.array(after, pa.binary())


def _places(found: Found, depth: int, wanted: Flags) -> _Places:
    count = len(found.valid)
    starts, ends = np.zeros((2, count), np.int64)
    templates, blocked = np.full((2, count), -1, np.int64)
    places = _Places(starts, ends, templates, blocked)
    kind, start, end = map(np.ascontiguousarray, (found.kind, found.value_start, found.value_end))
    _find_places(found.buffer, found.valid & wanted, kind, start, end, depth, places)
    return places


def _growth(places: _Places, values: _Texts, before: _Texts, after: _Texts) -> Spans:
    changes = places.template >= 0
    template = np.where(changes, places.template, 0)
    added = np.diff(values.offsets) + np.diff(before.offsets)[template] + np.diff(after.offsets)[template]
    return np.where(changes, added - (places.end - places.start), 0)


@compiled
def _find_places(
    buf: Bytes,
    active: Flags,
    kind: npt.NDArray[np.int8],
    value_start: Spans,
    value_end: Spans,
    depth: int,
    places: _Places,
) -> None:
    start, end, template, blocked_at = places
    for row in range(len(active)):
        if not active[row]:
            continue
        level = depth
        while kind[row, level] == ABSENT:
            level -= 1
        if level == depth:
            start[row] = value_start[row, level]
            end[row] = value_end[row, level]
            template[row] = 0
        elif kind[row, level] == NULL:
            start[row] = value_start[row, level]
            end[row] = value_end[row, level]
            template[row] = 3 * level + 3
        elif kind[row, level] == OBJECT:
            at = value_end[row, level] - 1
            while buf[at - 1] <= 0x20:
                at -= 1
            start[row] = at
            end[row] = at
            template[row] = 3 * level + (2 if buf[at - 1] == OPEN_OBJECT else 1)
        else:
            blocked_at[row] = level


@compiled
def _splice(docs: _Texts, places: _Places, values: _Texts, before: _Texts, after: _Texts, out: Bytes) -> None:
    (buf, offsets), (new, new_offsets) = docs, values
    (opening, opening_offsets), (closing, closing_offsets) = before, after
    start, end, template, _ = places
    at = 0
    for row in range(len(start)):
        which = template[row]
        if which < 0:
            at = copy_bytes(buf, offsets[row], offsets[row + 1], out, at)
            continue
        at = copy_bytes(buf, offsets[row], start[row], out, at)
        at = copy_bytes(opening, opening_offsets[which], opening_offsets[which + 1], out, at)
        at = copy_bytes(new, new_offsets[row], new_offsets[row + 1], out, at)
        at = copy_bytes(closing, closing_offsets[which], closing_offsets[which + 1], out, at)
        at = copy_bytes(buf, end[row], offsets[row + 1], out, at)


@compiled
def _wrap(buf: Bytes, offsets: Spans, valid: Flags, before: Bytes, closings: int, out: npt.NDArray[np.uint8]) -> None:
    at = 0
    for row in range(len(valid)):
        if not valid[row]:
            continue
        at = copy_bytes(before, 0, len(before), out, at)
        at = copy_bytes(buf, offsets[row], offsets[row + 1], out, at)
        for _ in range(closings):
            out[at] = 0x7D
            at += 1
