"""Events in the address of an image: ``p.gif?data=<base64 of a JSON object>&user.email=x``.

``data`` is one event, in standard or URL-safe base64, padded or not. Every other parameter is a value at a path, dots
between the keys, always a string; parameters overwrite ``data`` one after the other, so the last one wins.
``token`` is the secret and does not become part of the event.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

from penstock.sources.http.body.body_events import BadBody, Event, too_large
from penstock.sources.http.body.json_merge import Tree, overlaid
from penstock.sources.http.config import LimitsConfig
from penstock.sources.http.responses import Answer
from penstock.sources.json_text import BOM, WHITESPACE, NotJson, kind_of, parse

MAX_KEYS_OF_A_PATH = 64

TRANSPARENT = Answer(
    200,
    [
        ("content-type", "image/gif"),
        ("cache-control", "no-store, no-cache, must-revalidate, private, max-age=0"),
        ("pragma", "no-cache"),
        ("expires", "0"),
    ],
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00!\xf9\x04\x01\x00\x00\x00\x00"
    b",\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;",
)


def event(query: str, limits: LimitsConfig) -> Event:
    """The event that a query describes; without parameters, an empty one."""
    text = b"{}"
    changes: Tree = {}
    for name, value in _parameters(query):
        if name == "data":
            text = _data(value)
        elif name != "token":
            _set(changes, name, value)
    if changes:
        text = overlaid(text, changes)
    if len(text) > limits.event_bytes:
        raise too_large(len(text), limits, 0)
    parsed = parse(text)
    assert isinstance(parsed, dict)
    return Event(text, parsed)


def _parameters(query: str) -> Iterator[tuple[str, str]]:
    for part in query.split("&"):
        if part:
            name, _, value = part.partition("=")
            yield _decoded(name), _decoded(value)


def _decoded(text: str) -> str:
    try:
        return unquote_to_bytes(text.replace("+", " ")).decode("utf-8")
    except UnicodeDecodeError:
        raise BadBody(HTTPStatus.BAD_REQUEST, "bad_query", "a parameter is not UTF-8") from None


def _data(value: str) -> bytes:
    # A plus that nobody escaped has become a blank on the way.
    plain = value.translate(_STANDARD).rstrip("=")
    try:
        body = b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (Base64Error, ValueError) as error:
        raise BadBody(HTTPStatus.BAD_REQUEST, "not_base64", f"data is not base64: {error}") from None
    text = body.removeprefix(BOM).strip(WHITESPACE)
    if not text:
        raise BadBody(HTTPStatus.BAD_REQUEST, "empty_body", "data is empty; send a JSON object in base64")
    try:
        parsed = parse(text)
    except NotJson as error:
        raise BadBody(HTTPStatus.BAD_REQUEST, "not_json", f"data is {error}") from None
    if not isinstance(parsed, dict):
        message = f"data is {kind_of(parsed)} where an object was expected"
        raise BadBody(HTTPStatus.BAD_REQUEST, "not_an_object", message)
    return text


def _set(tree: Tree, name: str, value: str) -> None:
    *outer, last = name.split(".")
    if len(outer) >= MAX_KEYS_OF_A_PATH:
        message = f"a parameter's name has more than {MAX_KEYS_OF_A_PATH} keys"
        raise BadBody(HTTPStatus.BAD_REQUEST, "bad_query", message)
    for key in outer:
        inner = tree.get(key)
        if not isinstance(inner, dict):
            inner = tree[key] = {}
        tree = inner
    tree[last] = value


_STANDARD = str.maketrans("-_ ", "+/+")
