"""From a request's body to its events: the exact bytes of each, with its parsed value beside it.

``events`` takes one JSON text (an object, an array, or a template with its events) whole or not at all: the first thing
wrong raises ``BadBody``, which names the place. ``lines`` takes NDJSON line by line: a bad line comes out as a
``Malformed`` with its raw bytes, and the others are not troubled by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from penstock.sources.jsontext import BOM, WHITESPACE, Json, Member, NotJson, elements, kind_of, members, parse

MAX_TEMPLATE_DEPTH = 64


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
    text = _trimmed(body)
    if not text:
        raise BadBody(HTTPStatus.BAD_REQUEST, "empty_body", "the body is empty; send a JSON object or an array of them")
    try:
        value = parse(text)
        if isinstance(value, list):
            return _array(text, value, limits)
        if not isinstance(value, dict):
            raise _not_an_object(value, None)
        if _is_envelope(value):
            return _templated(text, limits)
    except NotJson as error:
        raise BadBody(HTTPStatus.BAD_REQUEST, "not_json", str(error)) from None
    if len(text) > limits.event_bytes:
        raise _too_large(len(text), limits, 0)
    return [Event(text, value)]


def lines(body: bytes, limits: BodyLimits) -> Iterator[Event | Malformed]:
    """Every line of an NDJSON body that is not blank. Line numbers count from 1, blank lines included."""
    if body.startswith(BOM):
        body = body[len(BOM) :]
    found = body.split(b"\n")
    # Counted before any is read: a small packed body can hold a great many lines.
    if len(found) > limits.body_events and sum(1 for line in found if line.strip(WHITESPACE)) > limits.body_events:
        raise _too_many(limits)
    for number, line in enumerate(found, 1):
        text = line.strip(WHITESPACE)
        if text:
            yield _line(text, number, limits)


def _line(text: bytes, number: int, limits: BodyLimits) -> Event | Malformed:
    if len(text) > limits.event_bytes:
        return Malformed(text, f"line {number}: {len(text)} bytes, the limit is {limits.event_bytes}")
    try:
        value = parse(text)
    except NotJson as error:
        return Malformed(text, f"line {number}: {error}")
    if not isinstance(value, dict):
        return Malformed(text, f"line {number}: {kind_of(value)} where an object was expected")
    return Event(text, value)


def _array(text: bytes, values: list[Json], limits: BodyLimits) -> list[Event]:
    if len(values) > limits.body_events:
        raise _too_many(limits)
    found: list[Event] = []
    for index, (span, value) in enumerate(zip(elements(text), values, strict=True)):
        if not isinstance(value, dict):
            raise _not_an_object(value, index)
        if span.end - span.start > limits.event_bytes:
            raise _too_large(span.end - span.start, limits, index)
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
    # Taken apart once, repeated keys folded: what an event costs then depends on what it becomes, which is limited.
    filler = {member.key: member for member in members(template)}
    if len(template) > limits.event_bytes:
        raise BadBody(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "template_too_large",
            f"the template has {len(template)} bytes, the limit is {limits.event_bytes}",
        )
    found: list[Event] = []
    total = 0
    for index, event in enumerate(_array(listed, values, limits)):
        filled = _filled(event.text, template, filler, MAX_TEMPLATE_DEPTH)
        total += len(filled)
        if len(filled) > limits.event_bytes:
            raise _too_large(len(filled), limits, index)
        if total > limits.body_bytes:
            raise BadBody(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "body_too_large",
                f"with the template filled in, the events are larger than {limits.body_bytes} bytes",
            )
        value = parse(filled)
        assert isinstance(value, dict)
        found.append(Event(filled, value))
    return found


def _filled(event: bytes, template: bytes, filler: Mapping[str, Member], depth: int) -> bytes:
    """The event with the template's members that it lacks; where both have an object, that object likewise."""
    if depth == 0:
        raise NotJson(f"the template and an event share more than {MAX_TEMPLATE_DEPTH} levels of objects")
    own = members(event)
    own_by_key = {member.key: member for member in own}
    replaced: dict[Member, bytes] = {}
    missing: dict[str, bytes] = {}
    for member in filler.values():
        theirs = template[member.value.start : member.value.end]
        mine = own_by_key.get(member.key)
        if mine is None:
            missing[member.key] = template[member.start : member.value.end]
        elif theirs.startswith(b"{") and event.startswith(b"{", mine.value.start):
            head = event[mine.start : mine.value.start]
            inner = {part.key: part for part in members(theirs)}
            replaced[mine] = head + _filled(event[mine.value.start : mine.value.end], theirs, inner, depth - 1)
    texts = [replaced.get(member) or event[member.start : member.value.end] for member in own]
    return b"{%b}" % b",".join([*texts, *missing.values()])


def _trimmed(body: bytes) -> bytes:
    if body.startswith(BOM):
        body = body[len(BOM) :]
    return body.strip(WHITESPACE)


def _not_an_object(value: Json, index: int | None) -> BadBody:
    where = "the body is" if index is None else f"event {index} is"
    expected = "an object or an array of objects" if index is None else "an object"
    message = f"{where} {kind_of(value)} where {expected} was expected"
    return BadBody(HTTPStatus.BAD_REQUEST, "not_an_object", message, index)


def _too_large(size: int, limits: BodyLimits, index: int) -> BadBody:
    message = f"event {index} has {size} bytes, the limit is {limits.event_bytes}; nothing was taken"
    return BadBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "event_too_large", message, index)


def _too_many(limits: BodyLimits) -> BadBody:
    message = f"the body has more than {limits.body_events} events; nothing was taken"
    return BadBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_many_events", message)
