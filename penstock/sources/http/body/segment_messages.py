"""Segment's messages: ``/v1/track`` and its siblings take one, ``/v1/batch`` takes many with what they share.

A message becomes an event as it is. What it lacks is filled in: ``type`` from the path of a single call; ``context``,
``integrations`` and ``sentAt`` from the batch around it, objects being merged. ``writeKey`` is a secret and leaves the
message. ``messageId`` is the event's id, so a batch that a library sends again carries the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus

from penstock.sources.http.body import body_events
from penstock.sources.http.body.body_events import WALK_BYTES, BadBody, Event
from penstock.sources.http.body.json_merge import Filler, without
from penstock.sources.http.config import LimitsConfig
from penstock.sources.json_start import first_string
from penstock.sources.json_text import NotJson, Span, members, parse
from penstock.sources.json_walk import TooLong, Walker

WRITE_KEY = "writeKey"
KEY_PREFIX_BYTES = 65_536
"""How much of a body (unpacked) is searched for the key of an unknown sender. Not less: some of Segment's
libraries put it behind the messages, of which they send twenty at a time."""
SHARED = ("context", "integrations", "sentAt")


def key_in(prefix: bytes) -> str | None:
    """The secret in the first part of a body, which is not checked yet: it may be cut, or not JSON at all."""
    return first_string(prefix[:KEY_PREFIX_BYTES], WRITE_KEY) or None


class Call:
    """The body of a call: a JSON object; ``messages`` finds the messages in it."""

    def __init__(self, body: bytes, kind: str | None, limits: LimitsConfig) -> None:
        """``kind`` is the type that the path names; None for a batch."""
        self._text = body_events.json_text(body)
        self._kind = kind
        self._limits = limits

    def messages(self, admit: Callable[[str | None], None]) -> Iterator[Event]:
        """The messages, one after the other, or ``BadBody``. Calls ``admit`` with the call's key before the first."""
        body_events.check_tokens(self._text, self._limits)
        try:
            if len(self._text) > max(WALK_BYTES, self._limits.event_bytes):
                yield from self._walk_messages(admit)
            else:
                yield from self._parse_messages(admit)
        except NotJson as error:
            raise BadBody(HTTPStatus.BAD_REQUEST, "not_json", str(error)) from None

    def _parse_messages(self, admit: Callable[[str | None], None]) -> Iterator[Event]:
        text, kind, limits = self._text, self._kind, self._limits
        value = parse(text)
        if not isinstance(value, dict):
            raise body_events.not_an_object(value, None)
        key = value.get(WRITE_KEY)
        admit(key if isinstance(key, str) and key else None)
        if kind is not None:
            filler = Filler.of(b'{"type":"%b"}' % kind.encode())
            yield from body_events.all_filled([_keyless(Event(text, value))], filler, limits)
            return
        values = value.get("batch")
        if not isinstance(values, list):
            raise _not_a_batch()
        parts = {member.key: (member.start, member.value) for member in members(text)}
        _, listed = parts["batch"]
        found = body_events.array(text[listed.start : listed.end], values, limits)
        yield from body_events.all_filled(map(_keyless, found), _shared(text, parts, limits), limits)

    def _walk_messages(self, admit: Callable[[str | None], None]) -> Iterator[Event]:
        text, limits = self._text, self._limits
        if self._kind is not None or not text.startswith(b"{"):
            raise body_events.too_large(len(text), limits, 0)
        walker = Walker(text, limits.event_bytes)
        try:
            outline = walker.outline("batch", limits.body_events)
        except TooLong:
            raise body_events.too_large(len(text), limits, 0) from None
        if outline is None:
            raise _not_a_batch()
        if len(outline.listed) > 2 * limits.body_events:
            raise body_events.too_many(limits)
        walker.check_end()
        key = outline.others.get(WRITE_KEY)
        value = parse(text[key[1].start : key[1].end]) if key is not None else None
        admit(value if isinstance(value, str) and value else None)
        found = map(_keyless, body_events.walked(text, outline.elements(), limits))
        yield from body_events.all_filled(found, _shared(text, outline.others, limits), limits)


def message_id(message: Event) -> str | None:
    """What the message calls itself."""
    found = message.value.get("messageId")
    return found if isinstance(found, str) and found else None


def _shared(text: bytes, parts: Mapping[str, tuple[int, Span]], limits: LimitsConfig) -> Filler:
    """What the messages of a batch have in common."""
    shared = [text[parts[key][0] : parts[key][1].end] for key in SHARED if key in parts]
    return body_events.template(b"{%b}" % b",".join(shared), limits)


def _not_a_batch() -> BadBody:
    return BadBody(HTTPStatus.BAD_REQUEST, "not_a_batch", "the body has no array 'batch' of messages")


def _keyless(event: Event) -> Event:
    if WRITE_KEY not in event.value:
        return event
    text = without(event.text, WRITE_KEY)
    value = parse(text)
    assert isinstance(value, dict)
    return Event(text, value)
