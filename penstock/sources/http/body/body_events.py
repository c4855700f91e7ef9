"""From a request's body to its events: the exact bytes of each, with its parsed value beside it.

``events`` takes one JSON text (an object, an array, or a template with its events) completely or not at all: the first
error raises ``BadBody``, which names the place. ``lines`` takes NDJSON line by line: a bad line comes out as a
``Malformed`` with its raw bytes, and does not affect the others.

Both go through a large body event by event, each checked against the limits and then parsed when its turn comes: cost
grows with the bytes that come in and go out, and memory with the largest event.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from itertools import islice
from typing import NamedTuple

from penstock.sources.http.body.json_merge import Filler, filled
from penstock.sources.http.config import LimitsConfig, ServerLimits
from penstock.sources.json_text import BOM, WHITESPACE, Json, NotJson, Span, elements, kind_of, members, parse
from penstock.sources.json_walk import WINDOW_BYTES, TooLong, Walker

WALK_BYTES = 65_536
"""A larger body is not parsed at once, but event by event."""
_LINE = re.compile(rb"[^ \t\r\n][^\n]*")
"""A line that is not blank, from its first non-blank character on. Skips blank lines without a match for each."""


class Event(NamedTuple):
    text: bytes
    value: dict[str, Json]


class Malformed(NamedTuple):
    raw: bytes
    reason: str
    headers: tuple[tuple[str, str], ...] = ()
    """What described it apart from its bytes."""


class BadBody(ValueError):
    """A body that is refused as a whole."""

    def __init__(self, status: HTTPStatus, code: str, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.index = index


def events(body: bytes, limits: LimitsConfig) -> Iterable[Event]:
    """All events of a JSON body, one after the other, or ``BadBody``."""
    text = json_text(body)
    check_tokens(text, limits)
    if len(text) > max(WALK_BYTES, limits.event_bytes):
        return _in_words(walked_events(text, limits))
    try:
        value = parse(text)
    except NotJson as error:
        raise _not_json(error) from None
    if isinstance(value, dict) and len(text) <= limits.event_bytes and not _is_envelope(value):
        return (Event(text, value),)
    return _in_words(parsed_events(text, value, limits))


def _in_words(found: Iterator[Event]) -> Iterator[Event]:
    """The same events; text that is not JSON becomes an error for the client."""
    try:
        yield from found
    except NotJson as error:
        raise _not_json(error) from None


def check_tokens(body: bytes, limits: ServerLimits) -> None:
    """Refuse a body with too many JSON tokens, however small they are."""
    if len(body) > limits.body_tokens and _tokens(body) > limits.body_tokens:
        raise _too_many_tokens(limits)


def parsed_events(text: bytes, value: Json, limits: LimitsConfig) -> Iterator[Event]:
    """The events of a text that was small enough to be parsed at once, as ``value``."""
    if isinstance(value, list):
        yield from array(text, value, limits)
    elif not isinstance(value, dict):
        raise not_an_object(value, None)
    elif _is_envelope(value):
        spans = {member.key: member.value for member in members(text)}
        listed = text[spans["events"].start : spans["events"].end]
        values = value["events"]
        assert isinstance(values, list)
        filler = template(text[spans["template"].start : spans["template"].end], limits)
        yield from all_filled(array(listed, values, limits), filler, limits)
    elif len(text) > limits.event_bytes:
        raise too_large(len(text), limits, 0)
    else:
        yield Event(text, value)


def walked_events(text: bytes, limits: LimitsConfig, window: int = WINDOW_BYTES) -> Iterator[Event]:
    """The same for a larger text of any size, without parsing it at once."""
    walker = Walker(text, limits.event_bytes, window)
    if text.startswith(b"["):
        yield from walked(text, walker.elements(0), limits)
        walker.check_end()
        return
    if not text.startswith(b"{"):
        raise too_large(len(text), limits, 0)
    try:
        outline = walker.outline("events", limits.body_events)
    except TooLong:
        outline = None
    if outline is None or not outline.others.keys() <= {"template"}:
        raise too_large(len(text), limits, 0)
    if len(outline.listed) > 2 * limits.body_events:
        raise too_many(limits)
    walker.check_end()
    shared = outline.others.get("template")
    if shared is None or not text.startswith(b"{", shared[1].start):
        raise too_large(len(text), limits, 0)
    filler = template(text[shared[1].start : shared[1].end], limits, parsed=False)
    yield from all_filled(walked(text, outline.elements(), limits), filler, limits)


def walked(text: bytes, spans: Iterator[Span], limits: LimitsConfig) -> Iterator[Event]:
    """The events at these places, each checked and parsed when its turn comes."""
    index = 0
    while True:
        try:
            span = next(spans, None)
        except TooLong:
            raise _too_long(limits, index) from None
        if span is None:
            return
        if index >= limits.body_events:
            raise too_many(limits)
        if span.end - span.start > limits.event_bytes:
            raise too_large(span.end - span.start, limits, index)
        one = text[span.start : span.end]
        value = parse(one)
        if not isinstance(value, dict):
            raise not_an_object(value, index)
        yield Event(one, value)
        index += 1


def json_text(body: bytes) -> bytes:
    """The JSON text of a body, without what may surround it."""
    text = (body[len(BOM) :] if body.startswith(BOM) else body).strip(WHITESPACE)
    if not text:
        raise BadBody(HTTPStatus.BAD_REQUEST, "empty_body", "the body is empty; send a JSON object or an array of them")
    return text


def lines(body: bytes, limits: LimitsConfig) -> Iterator[Event | Malformed]:
    """Every line of an NDJSON body that is not blank. Line numbers count from 1, blank lines included."""
    check_tokens(body, limits)
    first = len(BOM) if body.startswith(BOM) else 0
    # Counted first: a small compressed body can hold a great many lines.
    if body.count(b"\n") >= limits.body_events:
        counted_lines = sum(1 for _ in islice(_LINE.finditer(body, first), limits.body_events + 1))
        if counted_lines > limits.body_events:
            raise too_many(limits)
    found = False
    number, counted = 1, 0
    for line in _LINE.finditer(body, first):
        found = True
        start, end = line.span()
        number += body.count(b"\n", counted, start)
        counted = start
        # A bad line is kept completely, with blanks and a byte order mark.
        raw_start = body.rfind(b"\n", 0, start) + 1
        raw_end = end - 1 if end < len(body) and body[end - 1 : end] == b"\r" else end
        yield _line(line.group().strip(WHITESPACE), body[raw_start:raw_end], number, limits)
    if not found:
        raise BadBody(HTTPStatus.BAD_REQUEST, "empty_body", "there is no line to read; send one JSON object per line")


def _line(text: bytes, raw: bytes, number: int, limits: LimitsConfig) -> Event | Malformed:
    if len(text) > limits.event_bytes:
        return Malformed(raw, f"line {number}: {len(text)} bytes, the limit is {limits.event_bytes}")
    try:
        value = parse(text)
    except NotJson as error:
        return Malformed(raw, f"line {number}: {error}")
    if not isinstance(value, dict):
        return Malformed(raw, f"line {number}: {kind_of(value)} where an object was expected")
    return Event(text, value)


def array(text: bytes, values: list[Json], limits: LimitsConfig) -> Iterator[Event]:
    """The elements of an array, all of them objects."""
    if len(values) > limits.body_events:
        raise too_many(limits)
    for index, (span, value) in enumerate(zip(elements(text), values, strict=True)):
        if not isinstance(value, dict):
            raise not_an_object(value, index)
        if span.end - span.start > limits.event_bytes:
            raise too_large(span.end - span.start, limits, index)
        yield Event(text[span.start : span.end], value)


def _is_envelope(value: dict[str, Json]) -> bool:
    return (
        value.keys() == {"template", "events"}
        and isinstance(value["template"], dict)
        and isinstance(value["events"], list)
    )


def template(text: bytes, limits: LimitsConfig, parsed: bool = True) -> Filler:
    """What the events of a body share. Checked against the limits before any event is filled with it. A text that was
    not ``parsed`` but walked over may not be JSON: then it raises ``NotJson``."""
    if len(text) > limits.event_bytes:
        raise BadBody(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "template_too_large",
            f"what the events share has {len(text)} bytes, the limit is {limits.event_bytes}",
        )
    if not parsed:
        parse(text)
    return Filler.of(text)


def all_filled(found: Iterable[Event], filler: Filler, limits: LimitsConfig) -> Iterator[Event]:
    """The events with the shared members that they lack, still within the limits, each and all together."""
    total = tokens = 0
    for index, event in enumerate(found):
        text = filled(event.text, event.value, filler)
        total += len(text)
        tokens += _tokens(text)
        if tokens > limits.body_tokens:
            raise _too_many_tokens(limits)
        if len(text) > limits.event_bytes:
            raise too_large(len(text), limits, index)
        if total > limits.body_bytes:
            raise BadBody(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "body_too_large",
                f"with what they share filled in, the events are larger than {limits.body_bytes} bytes",
            )
        if text is event.text:
            yield event
            continue
        value = parse(text)
        assert isinstance(value, dict)
        yield Event(text, value)


def not_an_object(value: Json, index: int | None) -> BadBody:
    where = "the body is" if index is None else f"event {index} is"
    expected = "an object or an array of objects" if index is None else "an object"
    message = f"{where} {kind_of(value)} where {expected} was expected"
    return BadBody(HTTPStatus.BAD_REQUEST, "not_an_object", message, index)


def too_large(size: int, limits: LimitsConfig, index: int) -> BadBody:
    message = f"event {index} has {size} bytes, the limit is {limits.event_bytes}; nothing was stored"
    return BadBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "event_too_large", message, index)


def _too_long(limits: LimitsConfig, index: int) -> BadBody:
    message = f"event {index} is longer than {limits.event_bytes} bytes; nothing was stored"
    return BadBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "event_too_large", message, index)


def _tokens(text: bytes) -> int:
    return text.count(b",") + text.count(b":") + text.count(b"{") + text.count(b"[")


def _too_many_tokens(limits: ServerLimits) -> BadBody:
    message = f"the body has more than {limits.body_tokens} brackets, commas and colons; nothing was stored"
    return BadBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_many_tokens", message)


def _not_json(error: NotJson) -> BadBody:
    return BadBody(HTTPStatus.BAD_REQUEST, "not_json", str(error))


def too_many(limits: LimitsConfig) -> BadBody:
    message = f"the body has more than {limits.body_events} events; nothing was stored"
    return BadBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_many_events", message)
