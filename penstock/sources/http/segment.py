"""Segment's messages: ``/v1/track`` and its siblings take one, ``/v1/batch`` takes many with what they share.

A message becomes an event as it is. What it lacks is filled in: ``type`` from the path of a single call; ``context``,
``integrations`` and ``sentAt`` from the batch around it, objects being merged. ``writeKey`` is a secret and leaves the
message. ``messageId`` is the event's id, so a batch that a library sends again carries the same ids.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

from penstock.sources.http.bodies import BadBody, BodyLimits, Event, all_filled, array, json_value, not_an_object
from penstock.sources.http.merging import Filler, without
from penstock.sources.jsontext import Json, NotJson, members, parse

WRITE_KEY = "writeKey"
SHARED = ("context", "integrations", "sentAt")


class Call(NamedTuple):
    """The body of a call: an object."""

    text: bytes
    value: dict[str, Json]

    @property
    def write_key(self) -> str | None:
        """The secret, from libraries that cannot set a header."""
        key = self.value.get(WRITE_KEY)
        return key if isinstance(key, str) and key else None


def call(body: bytes) -> Call:
    text, value = json_value(body)
    if not isinstance(value, dict):
        raise not_an_object(value, None)
    return Call(text, value)


def messages(call: Call, kind: str | None, limits: BodyLimits) -> list[Event]:
    """The messages of a call, or ``BadBody``. ``kind`` is the type that the path names; None for a batch."""
    try:
        if kind is not None:
            return all_filled([_keyless(Event(*call))], Filler.of(b'{"type":"%b"}' % kind.encode()), limits)
        return _batch(call, limits)
    except NotJson as error:
        raise BadBody(HTTPStatus.BAD_REQUEST, "not_json", str(error)) from None


def message_id(message: Event) -> str | None:
    """What the message calls itself."""
    found = message.value.get("messageId")
    return found if isinstance(found, str) and found else None


def _batch(call: Call, limits: BodyLimits) -> list[Event]:
    values = call.value.get("batch")
    if not isinstance(values, list):
        raise BadBody(HTTPStatus.BAD_REQUEST, "not_a_batch", "the body has no array 'batch' of messages")
    parts = {member.key: member for member in members(call.text)}
    listed = call.text[parts["batch"].value.start : parts["batch"].value.end]
    shared = [call.text[parts[key].start : parts[key].value.end] for key in SHARED if key in parts]
    filler = Filler.of(b"{%b}" % b",".join(shared))
    if len(filler.text) > limits.event_bytes:
        message = f"what the batch shares has {len(filler.text)} bytes, the limit is {limits.event_bytes}"
        raise BadBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "template_too_large", message)
    return all_filled([_keyless(event) for event in array(listed, values, limits)], filler, limits)


def _keyless(event: Event) -> Event:
    if WRITE_KEY not in event.value:
        return event
    text = without(event.text, WRITE_KEY)
    value = parse(text)
    assert isinstance(value, dict)
    return Event(text, value)
