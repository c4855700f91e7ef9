"""Context enrichment: inserts what the collector knows about an event into the event's own bytes.

Set by the server, whatever the event says: ``source_ip``, ``_timestamp``, ``api_key`` and, on the server API and bulk,
``src``. Added when the event brings none: ``eventn_ctx.event_id`` on every endpoint (null and ``""`` are no id, any
other value is one), ``eventn_ctx.user_agent`` on the endpoints that browsers use. The id is at ``/eventn_ctx/event_id``
in every event: an ``eventn_ctx`` that is not an object is moved, unchanged, to ``/eventn_ctx/_value``. Every other key
and value stays as sent, byte for byte (blanks between members may be dropped).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import orjson

from penstock.sources.json_text import Json, Member, members

CONTEXT = "eventn_ctx"
DISPLACED = "_value"
"""Where, inside the context, a context that is not an object is kept."""


@dataclass(frozen=True, slots=True)
class Context:
    """What one request adds to each of its events; built once per request."""

    top: bytes
    """Members that the server sets, as JSON text without braces."""
    user_agent: bytes | None
    """The JSON text of the header, on the endpoint that wants it."""
    api: bool
    """Whether ``src`` is among the members of ``top``."""


def context(source_ip: str, timestamp: str, api_key: str, user_agent: str | None, api: bool) -> Context:
    """``user_agent`` is None on endpoints that do not add it."""
    top = b'"source_ip":%b,"_timestamp":"%b","api_key":%b' % (_quoted(source_ip), timestamp.encode(), _quoted(api_key))
    return Context(
        top=top + b',"src":"api"' if api else top,
        user_agent=_quoted(user_agent) if user_agent is not None else None,
        api=api,
    )


def enriched(event: bytes, parsed: Mapping[str, Json], added: Context, own_id: str | None = None) -> bytes:
    """The event with its context. ``event`` is an object's text without outer whitespace, ``parsed`` its value.

    ``own_id`` is the event's id in another field; without it, an event that has no id gets a random one.
    """
    inner = parsed.get(CONTEXT, _ABSENT)
    if inner is None or not (_SET_ON_API if added.api else _SET).isdisjoint(parsed):
        return _enriched_slowly(event, parsed, added, own_id)
    if inner is _ABSENT:
        return b'%b%b%b,"eventn_ctx":{%b}}' % (
            event[:-1],
            b"," if parsed else b"",
            added.top,
            _inner({}, added, own_id),
        )
    if not isinstance(inner, dict):
        return _enriched_slowly(event, parsed, added, own_id)
    insert = _inner(inner, added, own_id)
    if not insert:
        return b"%b,%b}" % (event[:-1], added.top)
    if event.count(b'"eventn_ctx"') != 1 or _may_hide_a_key(event) or inner.get("event_id", _ABSENT) in _NO_ID:
        return _enriched_slowly(event, parsed, added, own_id)
    # The key is at the top and its name occurs once, so this is it; its value is an object, so the next brace opens it.
    brace = event.index(b"{", event.index(b'"eventn_ctx"')) + 1
    return b"%b%b%b%b,%b}" % (event[:brace], insert, b"," if inner else b"", event[brace:-1], added.top)


class Clock:
    """UTC time as microseconds and as text with six digits; caches the text of a second."""

    def __init__(self) -> None:
        self._second = -1
        self._prefix = ""

    def now(self) -> tuple[int, str]:
        micros = time.time_ns() // 1000
        return micros, self.text(micros)

    def text(self, micros: int) -> str:
        second, rest = divmod(micros, 1_000_000)
        if second != self._second:
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
            self._second = second
        return f"{self._prefix}{rest:06d}Z"


def event_id() -> str:
    """A random UUID (version 4)."""
    try:
        digits = _random_digits.pop()
    except IndexError:
        # Requested in bulk: a system call per event would be a tenth of its cost. Another thread may do the same.
        digits = os.urandom(16 * IDS_AT_ONCE).hex()
        _random_digits.extend([digits[at : at + 32] for at in range(32, len(digits), 32)])
        digits = digits[:32]
    variant = _VARIANT[digits[16]]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def _inner(inner: Mapping[str, Json], added: Context, own_id: str | None) -> bytes:
    """The members that ``eventn_ctx`` still needs, as JSON text without braces."""
    parts: list[bytes] = []
    if inner.get("event_id") in _NO_ID:
        # Random ids need no escapes; ids of senders are written in ASCII, which can hold any text.
        parts.append(b'"event_id":%b' % (json.dumps(own_id) if own_id is not None else f'"{event_id()}"').encode())
    if added.user_agent is not None and "user_agent" not in inner:
        parts.append(b'"user_agent":%b' % added.user_agent)
    return b",".join(parts)


def _enriched_slowly(event: bytes, parsed: Mapping[str, Json], added: Context, own_id: str | None) -> bytes:
    """For any event: finds members one by one, cuts out those that the server sets, keeps the rest verbatim."""
    dropped = set(_SET_ON_API if added.api else _SET)
    inner = parsed.get(CONTEXT)
    tail = [added.top]
    if inner is None:
        dropped.add(CONTEXT)
        tail.append(b'"eventn_ctx":{%b}' % _inner({}, added, own_id))
    kept = [member for member in members(event) if member.key not in dropped]
    texts = [event[member.start : member.value.end] for member in kept]
    if inner is not None:
        last = max(i for i, member in enumerate(kept) if member.key == CONTEXT)
        if isinstance(inner, dict):
            texts[last] = _with_inner(event, kept[last], _inner(inner, added, own_id), inner)
        else:
            value = event[kept[last].value.start : kept[last].value.end]
            texts[last] = b'"eventn_ctx":{"%b":%b,%b}' % (DISPLACED.encode(), value, _inner({}, added, own_id))
    return b"{%b}" % b",".join([*texts, *tail])


def _with_inner(event: bytes, member: Member, insert: bytes, inner: Mapping[str, Json]) -> bytes:
    """The member ``eventn_ctx`` with ``insert`` in it; replaces an ``event_id`` that is empty or null."""
    head, value = event[member.start : member.value.start], event[member.value.start : member.value.end]
    if not insert:
        return head + value
    brings_id = inner.get("event_id") not in _NO_ID
    kept = [value[m.start : m.value.end] for m in members(value) if m.key != "event_id" or brings_id]
    return b"%b{%b}" % (head, b",".join([*kept, insert]))


def _may_hide_a_key(event: bytes) -> bool:
    """Whether letters of a key could be written as escapes (``\\u0065ventn_ctx``)."""
    return b"\\u00" in event and (b"\\u006" in event or b"\\u007" in event or b"\\u005" in event)


def _quoted(text: str) -> bytes:
    return _quoted_and_kept(text) if len(text) <= 256 else orjson.dumps(text)


@lru_cache(maxsize=4096)
def _quoted_and_kept(text: str) -> bytes:
    return orjson.dumps(text)


IDS_AT_ONCE = 256

_random_digits: list[str] = []
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_ABSENT = object()
_NO_ID: tuple[Json, ...] = (None, "")
"""Values of an id that count as missing. Any other value is the sender's, and stays."""
_SET = frozenset({"source_ip", "_timestamp", "api_key"})
_SET_ON_API = _SET | {"src"}
