"""From a request's body to its events: the exact bytes of each, with its parsed value beside it.

``events`` takes one JSON text (an object, an array, or a template with its events) whole or not at all: the first thing
wrong raises ``BadBody``, which names the place. ``lines`` takes NDJSON line by line: a bad line comes out as a
``Malformed`` with its raw bytes, and the others are not troubled by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from penstock.sources.http.merging import Filler, filled
from penstock.sources.jsontext import BOM, WHITESPACE, Json, NotJson, elements, kind_of, members, parse


class Event(NamedTuple):
    text: bytes
    value: dict[str, Json]


class Malformed(NamedTuple):
    raw: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class BodyLimits:
    event_bytes: int
    body_bytes: int
    body_events: int


class BadBody(ValueError):
    """A body that is refused as a whole."""

    def __init__(self, status: HTTPStatus, code: str, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.index = index


def events(body: bytes, limits: BodyLimits) -> list[Event]:
    """All events of a JSON body, or ``BadBody``."""
    text, value = json_value(body)
    try:
        if isinstance(value, list):
            return array(text, value, limits)
        if not isinstance(value, dict):
            raise not_an_object(value, None)
        if _is_envelope(value):
            return _templated(text, limits)
    except NotJson as error:
        raise _not_json(error) from None
    if len(text) > limits.event_bytes:
        raise too_large(len(text), limits, 0)
    return [Event(text, value)]


def json_value(body: bytes) -> tuple[bytes, Json]:
    """The JSON text of a body, without what may surround it, and its value."""
    text = (body[len(BOM) :] if body.startswith(BOM) else body).strip(WHITESPACE)
    if not text:
        raise BadBody(HTTPStatus.BAD_REQUEST, "empty_body", "the body is empty; send a JSON object or an array of them")
    try:
        return text, parse(text)
    except NotJson as error:
        raise _not_json(error) from None


def lines(body: bytes, limits: BodyLimits) -> Iterator[Event | Malformed]:
    """Every line of an NDJSON body that is not blank. Line numbers count from 1, blank lines included."""
    found = body.split(b"\n")
    # Counted before any is read: a small packed body can hold a great many lines.
    if len(found) > limits.body_events and sum(1 for line in found if line.strip(WHITESPACE)) > limits.body_events:
        raise _too_many(limits)
    anything = False
    for number, line in enumerate(found, 1):
        text = (line[len(BOM) :] if number == 1 and line.startswith(BOM) else line).strip(WHITESPACE)
        if text:
            anything = True
            ends_in_crlf = number < len(found) and line.endswith(b"\r")
            yield _line(text, line[:-1] if ends_in_crlf else line, number, limits)
    if not anything:
        raise BadBody(HTTPStatus.BAD_REQUEST, "empty_body", "there is no line to read; send one JSON object per line")


def _line(text: bytes, raw: bytes, number: int, limits: BodyLimits) -> Event | Malformed:
    if len(text) > limits.event_bytes:
        return Malformed(raw, f"line {number}: {len(text)} bytes, the limit is {limits.event_bytes}")
    try:
        value = parse(text)
    except NotJson as error:
        return Malformed(raw, f"line {number}: {error}")
    if not isinstance(value, dict):
        return Malformed(raw, f"line {number}: {kind_of(value)} where an object was expected")
    return Event(text, value)


def array(text: bytes, values: list[Json], limits: BodyLimits) -> list[Event]:
    """The elements of an array, all of them objects."""
    if len(values) > limits.body_events:
        raise _too_many(limits)
    found: list[Event] = []
    for index, (span, value) in enumerate(zip(elements(text), values, strict=True)):
        if not isinstance(value, dict):
            raise not_an_object(value, index)
        if span.end - span.start > limits.event_bytes:
            raise too_large(span.end - span.start, limits, index)
        found.append(Event(text[span.start : span.end], value))
    return found


def _is_envelope(value: dict[str, Json]) -> bool:
    return (
        value.keys() == {"template", "events"}
        and isinstance(value["template"], dict)
        and isinstance(value["events"], list)
    )


def _templated(text: bytes, limits: BodyLimits) -> list[Event]:
    spans = {member.key: member.value for member in members(text)}
    template = text[spans["template"].start : spans["template"].end]
    listed = text[spans["events"].start : spans["events"].end]
    values = parse(listed)
    assert isinstance(values, list)
    # Before anything is filled: what an event costs then depends on what it becomes, which is limited.
    if len(template) > limits.event_bytes:
        raise BadBody(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "template_too_large",
            f"the template has {len(template)} bytes, the limit is {limits.event_bytes}",
        )
    return all_filled(array(listed, values, limits), Filler.of(template), limits)


def all_filled(found: list[Event], filler: Filler, limits: BodyLimits) -> list[Event]:
    """The events with what they lack, each and all together still within the limits."""
    result: list[Event] = []
    total = 0
    for index, event in enumerate(found):
        text = filled(event.text, event.value, filler)
        total += len(text)
        if len(text) > limits.event_bytes:
            raise too_large(len(text), limits, index)
        if total > limits.body_bytes:
            raise BadBody(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "body_too_large",
                f"with what they share filled in, the events are larger than {limits.body_bytes} bytes",
            )
        value = parse(text)
        assert isinstance(value, dict)
        result.append(Event(text, value))
    return result


def not_an_object(value: Json, index: int | None) -> BadBody:
    where = "the body is" if index is None else f"event {index} is"
    expected = "an object or an array of objects" if index is None else "an object"
    message = f"{where} {kind_of(value)} where {expected} was expected"
    return BadBody(HTTPStatus.BAD_REQUEST, "not_an_object", message, index)


def too_large(size: int, limits: BodyLimits, index: int) -> BadBody:
    message = f"event {index} has {size} bytes, the limit is {limits.event_bytes}; nothing was taken"
    return BadBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "event_too_large", message, index)


def _not_json(error: NotJson) -> BadBody:
    return BadBody(HTTPStatus.BAD_REQUEST, "not_json", str(error))


def _too_many(limits: BodyLimits) -> BadBody:
    message = f"the body has more than {limits.body_events} events; nothing was taken"
    return BadBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_many_events", message)
