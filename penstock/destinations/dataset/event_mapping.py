"""An event of the log as one of addEvents: its session, and its bytes.

``ts``, ``sev``, ``thread`` and ``log`` are taken out of the event; what is left becomes attributes, nested fields under
names that are joined by dots. A document that has the form of addEvents already, ``ts`` and ``attrs``, is taken as it
is. Attributes by which events are grouped move to the session, once for all of its events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from penstock.destinations.sending.verbatim_json import dumps, has_long_numbers, loads
from penstock.sessions.session_keys import LOG_FILE, SERVER_HOST, key_fields, session_key, share_of, value_text
from penstock.sessions.trim import TooLarge, trim_attributes

ORIGINAL_HOST = "__origServerHost"
DEFAULT_SEVERITY = 3
_HIGHEST = 6
_TEXTS = {
    "fine": 0, "finest": 0, "trace": 1, "debug": 2, "info": 3, "information": 3, "warn": 4, "warning": 4, "error": 5,
    "fatal": 6, "critical": 6, "emergency": 6,
}  # fmt: skip
_FRACTION = re.compile(r"[.,](\d+)")
_NANOS = re.compile(r"[0-9]{1,20}")
_LATEST = 2**63 - 1
"""Nanoseconds since 1970, as the API has them. One event with another time would cost its whole request."""
_FORM = frozenset(("thread", "sev", "ts", "log", "attrs", SERVER_HOST))

_DIGITS_OF_64_BITS = 19
"""An integer with fewer fits for certain."""

MOST_KNOWN = 10_000
"""Sessions whose keys are remembered."""
BAD_EVENT = "bad_event"
TOO_LARGE = "too_large"


class BrokenRule(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Group(NamedTuple):
    """What the events of a session have in common."""

    key: str
    session_info: bytes
    log: tuple[str | None, bytes | None]
    """Its id, and how a request lists it."""


class MappedEvent(NamedTuple):
    key: str
    session_info: bytes
    thread: bytes | None
    log: bytes | None
    body: bytes
    is_trimmed: bool


@dataclass(frozen=True)
class EventMapper:
    group_by: tuple[str, ...]
    server_host: str
    """Of events that name none."""
    shares: int = 1
    """Over how many sessions a key is spread."""
    id_attribute: str | None = None
    most: int = 0
    """Bytes that an event may have in a request, with its thread, its log and its session's information."""

    record_id: Callable[[int, int], str] = "{}-{}".format
    """The id of a record, by its partition and offset."""

    def map_event(self, data: bytes, micros: int, place: tuple[int, int, int]) -> MappedEvent:
        """The event in ``data``, which came to the log at this time (µs since 1970) at this place. Raises
        ``BrokenRule``."""
        try:
            return self._map_event(data, micros, place)
        except (orjson.JSONEncodeError, RecursionError):
            raise BrokenRule(BAD_EVENT, "its values are nested too deep to be written as JSON") from None

    def _map_event(self, data: bytes, micros: int, place: tuple[int, int, int]) -> MappedEvent:
        fields = _read(data)
        if _has_form(fields):
            # What a source has put beside the form is kept as well, unless the event says it itself.
            beside = {name: value for name, value in fields.items() if name not in _FORM}
            attributes = {**flatten(beside, self.most), **fields["attrs"]} if beside else dict(fields["attrs"])
            ts, severity = _stated_time(fields["ts"], attributes, micros), _take_severity({"sev": fields.get("sev")})
            thread, log = fields.get("thread"), fields.get("log")
            host = _text(fields.get(SERVER_HOST))
        else:
            attributes = flatten(fields, self.most)
            ts = _take_time(attributes, micros)
            severity = _take_severity(attributes)
            thread, log = (take_object(attributes, fields, name, self.most) for name in ("thread", "log"))
            host = None
        own_key, info, (log_id, log_bytes) = self.take_group(attributes, host, log)
        key = share_of(own_key, place[1] + place[2], self.shares)
        thread_id, thread_bytes = definition(thread, "name", self.most)
        event: dict[str, object] = {} if thread_id is None else {"thread": thread_id}
        event |= {"sev": severity, "ts": ts}
        event |= {} if log_id is None else {"log": log_id}
        if self.id_attribute is not None:
            partition, offset, item = place
            attributes[self.id_attribute] = self.record_id(partition, offset) + (f"-{item}" if item else "")
        body = orjson.dumps({**event, "attrs": attributes})
        room = self.most - len(info) - sum(len(each) + 1 for each in (thread_bytes, log_bytes) if each is not None)
        if len(body) + 1 <= room:
            return MappedEvent(key, info, thread_bytes, log_bytes, body, False)
        around = len(orjson.dumps({**event, "attrs": None})) - len(b"null")
        return MappedEvent(key, info, thread_bytes, log_bytes, self._trim(event, attributes, room - around - 1), True)

    def take_group(self, attributes: dict[str, object], host: str | None = None, log: object = None) -> Group:
        """The session of an event, and its log; what they say is taken out of the attributes. ``host`` and ``log`` are
        what the event has beside its attributes."""
        host = self._take_host(attributes, host)
        file = _text(attributes.get(LOG_FILE))
        if log is None and file:
            log = {"id": file, "attrs": {}}
        key, info = self._take_session(attributes, host)
        return Group(key, info, definition(log, "attrs", self.most))

    @cached_property
    def fields_of_key(self) -> tuple[str, ...]:
        return key_fields(self.group_by)

    @cached_property
    def _known_sessions(self) -> dict[tuple[str, ...], tuple[str, bytes]]:
        """The keys and the information of sessions, by the names and values of their fields. Most events are of
        a session that others had."""
        return {}

    def _take_session(self, attributes: dict[str, object], host: str) -> tuple[str, bytes]:
        """The key of an event and what its session says; the values that it says are taken out of the event."""
        attributes[SERVER_HOST] = host
        grouped: dict[str, object] = {}
        for name in self.fields_of_key:
            if (value := attributes.pop(name, None)) is not None:
                grouped[name] = value
        texts = tuple(value for item in grouped.items() for value in item if isinstance(value, str))
        # Other values are not told apart by Python as they are by JSON.
        known = self._known_sessions.get(texts) if len(texts) == 2 * len(grouped) else None
        if known is None:
            known = session_key(self.fields_of_key, grouped), orjson.dumps({SERVER_HOST: host, **grouped})
            if len(texts) == 2 * len(grouped):
                if len(self._known_sessions) >= MOST_KNOWN:
                    self._known_sessions.clear()
                self._known_sessions[texts] = known
        return known

    def _trim(self, event: Mapping[str, object], attributes: dict[str, object], most: int) -> bytes:
        kept = {name: attributes.pop(name) for name in (self.id_attribute,) if name in attributes}
        spare = sum(len(orjson.dumps({name: value})) for name, value in kept.items())
        try:
            trimmed = trim_attributes(attributes, most - spare)
        except TooLarge:
            raise BrokenRule(
                TOO_LARGE,
                f"without any value of its attributes it still has more than the {self.most} bytes of a request",
            ) from None
        return orjson.dumps({**event, "attrs": {**trimmed, **kept}})

    def _take_host(self, attributes: dict[str, object], host: str | None) -> str:
        """The host of an event: its own, its attributes', or the one of events that name none."""
        own = value_text(attributes.pop(SERVER_HOST, None))
        original = attributes.get(ORIGINAL_HOST)
        return host or own or _text(original) or self.server_host


def flatten(fields: Mapping[str, Any], most: int) -> dict[str, object]:
    """Objects in objects as fields whose names are joined by dots. Of two with one name the later one gets ``_``.
    Raises ``BrokenRule`` if names alone would have more than ``most`` characters: what is nested repeats long ones."""
    if not any(isinstance(value, dict) for value in fields.values()):
        return dict(fields)
    found: dict[str, object] = {}
    _flatten_into(found, "", fields, most)
    return found


def _flatten_into(found: dict[str, object], prefix: str, fields: Mapping[str, Any], most: int) -> int:
    """Returns how many characters are left."""
    for name, value in fields.items():
        full = prefix + name
        if isinstance(value, dict) and value:
            most = _flatten_into(found, f"{full}.", value, most)
            continue
        while full in found:
            full += "_"
        found[full] = value
        most -= len(full)
        if most < 0:
            raise BrokenRule(TOO_LARGE, "the names of its attributes alone are more than a request may have")
    return most


def _read(data: bytes) -> dict[str, Any]:
    try:
        fields = parse(data)
    except (ValueError, RecursionError):
        fields = _read_loosely(data)
    if not isinstance(fields, dict):
        raise BrokenRule(BAD_EVENT, "it is not a JSON object")
    return fields


def parse(data: bytes) -> Any:
    """JSON, in which a number that a double or 64 bits cannot hold stays as it is written."""
    found = orjson.loads(data)
    if has_long_numbers(data):
        return json.loads(data, parse_float=_exact_float, parse_int=_exact_integer)
    return found


def _exact_float(text: str) -> float | orjson.Fragment:
    number = float(text)
    return number if Decimal(repr(number)) == Decimal(text) else orjson.Fragment(text.encode())


def _exact_integer(text: str) -> int | orjson.Fragment:
    if len(text) < _DIGITS_OF_64_BITS:
        return int(text)
    return orjson.Fragment(text.encode())


def _read_loosely(data: bytes) -> Any:
    """JSON with halves of characters, which have no place in UTF-8: they are replaced."""
    try:
        return parse(dumps(loads(data)).encode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise BrokenRule(BAD_EVENT, f"not JSON: {error}") from None


def _has_form(fields: Mapping[str, Any]) -> bool:
    ts = fields.get("ts")
    return isinstance(fields.get("attrs"), dict) and isinstance(ts, str) and _NANOS.fullmatch(ts) is not None


def _stated_time(ts: str, attributes: dict[str, object], micros: int) -> str:
    if int(ts) <= _LATEST:
        return ts
    attributes.setdefault("ts", ts)
    return str(micros * 1_000)


def _take_time(attributes: dict[str, object], micros: int) -> str:
    stated = attributes.get("_timestamp")
    nanos = nanoseconds(stated) if isinstance(stated, str) else None
    if nanos is None or not 0 <= nanos <= _LATEST:
        return str(micros * 1_000)
    del attributes["_timestamp"]
    return str(nanos)


def nanoseconds(text: str) -> int | None:
    """An RFC 3339 time, since 1970; ``None`` if it is none."""
    fraction = _FRACTION.search(text)
    whole = text if fraction is None else text[: fraction.start()] + text[fraction.end() :]
    try:
        moment = datetime.fromisoformat(whole)
        # Without a zone it would be this machine's time, whatever that is.
        seconds = int((moment if moment.tzinfo is not None else datetime.fromisoformat(f"{whole}Z")).timestamp())
    except (ValueError, OverflowError):
        return None
    return seconds * 1_000_000_000 + (0 if fraction is None else int(fraction[1][:9].ljust(9, "0")))


def _take_severity(attributes: dict[str, object]) -> int:
    for name in ("sev", "severity"):
        if (found := level(attributes.get(name))) is not None:
            del attributes[name]
            return found
    return DEFAULT_SEVERITY


def level(value: object) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        text = value.strip().lower()
        if text in _TEXTS:
            return _TEXTS[text]
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 3 else None
    return value if isinstance(value, int) and 0 <= value <= _HIGHEST else None


def take_object(attributes: dict[str, object], fields: Mapping[str, Any], name: str, most: int) -> Any:
    """The field with this name, if it is an object with an id, or for a thread its id."""
    value = fields.get(name)
    if isinstance(value, dict) and _text(value.get("id")):
        for inner in flatten({name: value}, most):
            attributes.pop(inner, None)
        return value
    if name == "thread" and not isinstance(value, float) and _text(value):
        del attributes[name]
        return _text(value)
    return None


def definition(value: Any, about: str, most: int) -> tuple[str | None, bytes | None]:
    """The id of a thread or a log, and how a request lists it. ``about``: what it has beside its id."""
    if value is None:
        return None, None
    if not isinstance(value, dict):
        text = _text(value)
        return text, orjson.dumps({"id": text, about: text if about == "name" else {}})
    text = _text(value.get("id"))
    known = value.get(about)
    if about == "name":
        return text, orjson.dumps({"id": text, about: value_text(known) or text})
    # The API takes an object.
    attributes = flatten(known, most) if isinstance(known, dict) else {} if known is None else {"value": known}
    return text, orjson.dumps({"id": text, about: attributes})


def _text(value: object) -> str | None:
    """A text, or a number as one; ``None`` for nothing."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, orjson.Fragment):
        return value_text(value)
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
