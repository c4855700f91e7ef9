"""Counts the messages in a request before anybody builds them.

A reader of protobuf needs up to two hundred bytes of memory for a message that was sent in two. Counting takes none:
whatever the bytes are, it goes through them once, and stops at the first message too many.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import Descriptor

from penstock.compiled import Bytes, borrowing
from penstock.otlp.json_requests import DEEPEST, Signal
from penstock.otlp.request_bytes import REQUESTS
from penstock.otlp.wire import BROKEN, DELIMITED, read_length, read_whole_tag, skip_content

_NO_MESSAGE = -1


class MessageTypes(NamedTuple):
    """The types of messages that a request may hold; the first is the request itself."""

    inner: npt.NDArray[np.int64]
    """By type, then by the number of a field: the type of the message that it holds; below zero if it holds none."""


class OpenMessages(NamedTuple):
    """The messages that the counter is in, from the outside in."""

    kind: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]


def count_messages(signal: Signal, body: bytes, most: int) -> int:
    """How many messages a request holds, each at every place where it is written. If there are more than ``most``, any
    number above it. ``BROKEN`` if bytes before that are no message, or one is nested deeper than protobuf reads."""
    depth = DEEPEST + 1
    open_messages = OpenMessages(np.zeros(depth, np.int64), np.zeros(depth, np.int64))
    return _count(np.frombuffer(body, np.uint8), _types(signal), open_messages, most)


@cache
def _types(signal: Signal) -> MessageTypes:
    places: dict[str, int] = {}
    found: list[Descriptor] = []

    def place_of(message: Descriptor) -> int:
        if message.full_name not in places:
            places[message.full_name] = len(found)
            found.append(message)
            for field in message.fields:
                if field.message_type is not None:
                    place_of(field.message_type)
        return places[message.full_name]

    place_of(REQUESTS[signal].DESCRIPTOR)
    fields = 1 + max(field.number for message in found for field in message.fields)
    inner = np.full((len(found), fields), _NO_MESSAGE, np.int64)
    for place, message in enumerate(found):
        for field in message.fields:
            if field.message_type is not None:
                inner[place, field.number] = place_of(field.message_type)
    return MessageTypes(inner)


@borrowing
def _count(buf: Bytes, types: MessageTypes, open_messages: OpenMessages, most: int) -> int:
    count, level, at = 0, 0, 0
    open_messages.end[0] = len(buf)
    while True:
        end = open_messages.end[level]
        if at >= end:
            if level == 0:
                return count
            level -= 1
            continue
        tag, at = read_whole_tag(buf, at, end)
        if at < 0:
            return BROKEN
        field = tag >> 3
        kind = _NO_MESSAGE
        if tag & 7 == DELIMITED and field < types.inner.shape[1]:
            kind = types.inner[open_messages.kind[level], field]
        if kind < 0:
            at = skip_content(buf, at, end, tag & 7)
            if at < 0:
                return BROKEN
            continue
        at, behind = read_length(buf, at, end)
        level += 1
        if behind < 0 or level == len(open_messages.end):
            return BROKEN
        count += 1
        if count > most:
            return count
        open_messages.kind[level], open_messages.end[level] = kind, behind
