"""The objects of a JSON body, found and not parsed: one object, or the elements of an array.

They may be as large as the body, and as deep as they like. Compiled code goes over the bytes, beside the other threads,
and says where things are: nothing is built and nothing is copied. Importing this module loads the compiler.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import numpy as np
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.json.containers import value_end
from penstock.json.document_problems import problem
from penstock.json.documents import Documents, documents
from penstock.json.find import Spans, find
from penstock.json.tokens import CLOSE_ARRAY, COMMA, skip_whitespace
from penstock.sources.http.body.body_events import BadBody, check_tokens, json_text
from penstock.sources.http.config import LimitsConfig

_AT_A_TIME = 4096
"""So many objects are looked into at once: it bounds what their places weigh."""

Verbatim = bytes | None
"""A value as it is written; ``None`` if there is none."""


@dataclass(frozen=True)
class JsonObjects:
    """Places in a text: object ``i`` is ``text[starts[i]:ends[i]]``."""

    text: bytes
    starts: Spans
    ends: Spans

    def members(self, names: Sequence[str]) -> Iterator[tuple[bytes, list[Verbatim]]]:
        """Each object, and its members of these names; of a repeated one, the last. Raises ``BadBody`` if one is no
        object, or none of the text is JSON."""
        for first in range(0, len(self.starts), _AT_A_TIME):
            starts, ends = self.starts[first : first + _AT_A_TIME], self.ends[first : first + _AT_A_TIME]
            # Every other document is what is between two objects, which nobody looks into.
            offsets = np.column_stack((starts, ends)).ravel()
            is_object = np.arange(len(offsets) - 1) % 2 == 0
            content = np.frombuffer(self.text, np.uint8)
            found = find(Documents(content, offsets, is_object), [(name,) for name in names])
            valid = found.valid[::2]
            if not valid.all():
                row = int(np.argmin(valid))
                raise self._refusal(first + row, int(found.broken_at[2 * row]))
            places = np.stack((found.value_start[::2], found.value_end[::2]), axis=2).tolist()
            for start, end, spans in zip(starts.tolist(), ends.tolist(), places, strict=True):
                yield self.text[start:end], [self.text[at:stop] if at >= 0 else None for at, stop in spans]

    def _refusal(self, index: int, broken_at: int) -> BadBody:
        # Elements of an array have been read already: they are JSON.
        if self.text[self.starts[index]] != _OPEN_OBJECT:
            return _not_an_object(self.text, int(self.starts[index]), index)
        return not_json(self.text, broken_at)


def find_objects(body: bytes, limits: LimitsConfig) -> JsonObjects:
    """The object that a body is, or the elements of its array, none of them larger than a bundle may be."""
    text = json_text(body)
    check_tokens(text, limits)
    content = np.frombuffer(text, np.uint8)
    starts, ends = np.array([0]), np.array([len(text)])
    if text.startswith(b"["):
        starts, ends, broken_at = _elements(content, limits.body_events)
        if broken_at >= 0:
            raise not_json(text, broken_at)
    elif not text.startswith(b"{"):
        broken_at = json_end(content)
        raise _not_an_object(text, 0, None) if broken_at < 0 else not_json(text, broken_at)
    if len(starts) > limits.body_events:
        message = f"the body has more than {limits.body_events} bundles; nothing was stored"
        raise BadBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_many_events", message)
    sizes = ends - starts
    if (too_large := sizes > limits.bundle_bytes).any():
        index = int(np.argmax(too_large))
        raise bundle_too_large(int(sizes[index]), limits, index)
    return JsonObjects(text, starts, ends)


def bundle_too_large(size: int, limits: LimitsConfig, index: int) -> BadBody:
    message = f"bundle {index} has {size} bytes, the limit is {limits.bundle_bytes}; nothing was stored"
    return BadBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "bundle_too_large", message, index)


def not_json(text: bytes, broken_at: int) -> BadBody:
    message = problem(documents(pa.array([text], pa.binary())), 0, broken_at).message
    return BadBody(HTTPStatus.BAD_REQUEST, "not_json", message)


def is_text(value: bytes) -> bool:
    return value.startswith(b'"')


def text_of(value: bytes) -> str:
    """The text that a JSON string means. Half of a surrogate pair stays as the escape that it is."""
    if b"\\" not in value:
        return value[1:-1].decode()
    text: str = json.loads(value)
    return text.encode("utf-8", "backslashreplace").decode()


@compiled
def json_end(buf: Bytes) -> int:
    """-1 if all of a text, without whitespace around it, is one JSON value; else where it breaks."""
    end = value_end(buf, 0, len(buf))
    if end < 0:
        return ~end
    return -1 if end == len(buf) else end


def _not_an_object(text: bytes, at: int, index: int | None) -> BadBody:
    where = "the body is" if index is None else f"bundle {index} is"
    message = f"{where} {_KINDS.get(text[at : at + 1], 'a number')} where an object was expected; nothing was stored"
    return BadBody(HTTPStatus.BAD_REQUEST, "not_an_object", message, index)


_OPEN_OBJECT = ord("{")
_KINDS = {b'"': "a string", b"[": "an array", b"t": "a boolean", b"f": "a boolean", b"n": "null"}
"""What a JSON value is, by its first byte."""


@compiled
def _elements(buf: Bytes, most: int) -> tuple[Spans, Spans, int]:
    """Where the elements of an array begin and end, and where it breaks; -1: nowhere. Stops when there are more than
    ``most``."""
    end = len(buf)
    starts = np.empty(64, np.int64)
    ends = np.empty(64, np.int64)
    count = 0
    i = skip_whitespace(buf, 1, end)
    if i < end and buf[i] == CLOSE_ARRAY:
        i += 1
    else:
        while True:
            stop = value_end(buf, i, end)
            if stop < 0:
                return starts[:count], ends[:count], ~stop
            if count == len(starts):
                starts = np.append(starts, np.empty(count, np.int64))
                ends = np.append(ends, np.empty(count, np.int64))
            starts[count] = i
            ends[count] = stop
            count += 1
            if count > most:
                return starts[:count], ends[:count], -1
            i = skip_whitespace(buf, stop, end)
            if i >= end:
                return starts[:count], ends[:count], i
            if buf[i] == CLOSE_ARRAY:
                i += 1
                break
            if buf[i] != COMMA:
                return starts[:count], ends[:count], i
            i = skip_whitespace(buf, i + 1, end)
    return starts[:count], ends[:count], -1 if i == end else i
