"""The limit on the messages of a request, checked before they are built.

Few requests can reach it, and most can be told by their bytes alone; only for the others are messages counted, because
that loads the compiler.
"""

from __future__ import annotations

from functools import cache

from google.protobuf.descriptor import Descriptor

from penstock.otlp.json_requests import Signal
from penstock.otlp.request_bytes import REQUESTS

SMALLEST_MESSAGE = 2
"""Bytes of a message in another: its tag and its length."""
_DELIMITED = 2


class TooManyMessages(ValueError):
    """A request of more messages than are taken at once."""


class NoMessages(ValueError):
    """Bytes that are no request."""


def check_messages(signal: Signal, body: bytes, most: int) -> None:
    """Raises ``TooManyMessages``, or ``NoMessages`` if it was seen on the way."""
    if not _may_hold_more(signal, body, most):
        return
    from penstock.otlp.message_count import count_messages  # loads the compiler: see above

    count = count_messages(signal, body, most)
    if count < 0:
        raise NoMessages
    if count > most:
        raise TooManyMessages


def _may_hold_more(signal: Signal, body: bytes, most: int) -> bool:
    """Every message has a tag, so there are no more of them than bytes that could be one."""
    if len(body) <= SMALLEST_MESSAGE * most:
        return False
    return len(body) - len(body.translate(None, _message_tags(signal))) > most


@cache
def _message_tags(signal: Signal) -> bytes:
    """The first bytes of the tags of all fields that hold messages. A tag can be written longer than it need be."""
    descriptors: list[Descriptor] = [REQUESTS[signal].DESCRIPTOR]
    numbers: set[int] = set()
    for descriptor in descriptors:
        for field in descriptor.fields:
            if field.message_type is not None:
                numbers.add(field.number)
                if field.message_type not in descriptors:
                    descriptors.append(field.message_type)
    short = {(number << 3 | _DELIMITED) & 0x7F for number in numbers}
    return bytes(sorted(short | {tag | 0x80 for tag in short}))
