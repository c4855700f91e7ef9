"""CloudEvents 1.0 over HTTP as bundles: ``type`` is the kind, ``source`` the source, extensions carry the versions.

Structured (``application/cloudevents+json``), batched (``application/cloudevents-batch+json``) and binary (headers
``ce-*``, the body being the data). An event without what CloudEvents requires is refused, with what is missing.
Importing this module loads the compiler.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import unquote

import numpy as np

from penstock.record import Header
from penstock.sources.http.access.auth_tokens import Headers
from penstock.sources.http.body.body_events import BadBody, check_tokens
from penstock.sources.http.body.bundles import FoundBundle, describe, find_bundles
from penstock.sources.http.body.json_objects import (
    Verbatim,
    bundle_too_large,
    find_objects,
    is_text,
    json_end,
    not_json,
    text_of,
)
from penstock.sources.http.config import LimitsConfig
from penstock.sources.json_text import BOM, WHITESPACE

SPEC_VERSION = "1.0"
STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"
ATTRIBUTES = {
    Header.SOURCE: ("source",),
    Header.KIND: ("type",),
    Header.VERSION: ("version", "bundleversion"),
    # Names of extensions have letters and digits only, but not everybody minds that.
    Header.DEPENDS_ON: ("dependson", "depends_on"),
    Header.BASE: ("base",),
}
"""The attributes that hold what describes a bundle; of several that are there, the first one counts."""

_REQUIRED = ("specversion", "id", "source", "type")
_NAMES = list(dict.fromkeys([*_REQUIRED, *(name for names in ATTRIBUTES.values() for name in names)]))
_QUOTED_PAIR = re.compile(r"\\(.)")

_Value = TypeVar("_Value", bytes, str)


def find_in_request(headers: Headers, body: bytes, limits: LimitsConfig) -> Iterator[FoundBundle]:
    """The bundles of a request, CloudEvents or not; or ``BadBody``."""
    media_type = (headers.get("content-type") or "").partition(";")[0].strip().lower()
    if media_type.startswith("application/cloudevents"):
        return _find_structured(media_type, body, limits)
    if any(headers.get(f"ce-{name}") is not None for name in _REQUIRED):
        return iter([_find_binary(headers, body, limits)])
    return find_bundles(body, limits)


def _find_structured(media_type: str, body: bytes, limits: LimitsConfig) -> Iterator[FoundBundle]:
    if media_type not in (STRUCTURED, BATCHED):
        message = f"CloudEvents are taken as {STRUCTURED}, as {BATCHED} or with ce- headers, not as {media_type}"
        raise BadBody(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unknown_format", message)
    objects = find_objects(body, limits)
    if objects.text.startswith(b"[") is not (media_type == BATCHED):
        message = f"{STRUCTURED} is one object, {BATCHED} an array of them"
        raise BadBody(HTTPStatus.BAD_REQUEST, "not_a_cloudevent", message)
    for index, (sent, values) in enumerate(objects.members([*_NAMES, "data", "data_base64"])):
        *attributes, data, packed = values
        by_name = {name: value for name, value in zip(_NAMES, attributes, strict=True) if value not in (None, b"null")}
        required = [by_name.get(name, b"") for name in _REQUIRED]
        _check_required([text_of(value) if value and is_text(value) else None for value in required], index)
        problem = None
        if packed not in (None, b"null"):
            problem = None if data is None else "it has both data and data_base64"
            if (data := _unpacked(packed)) is None:
                problem = "its data_base64 is no JSON in base64"
        yield describe(sent, _described(by_name), data, problem)


def _find_binary(headers: Headers, body: bytes, limits: LimitsConfig) -> FoundBundle:
    attributes = {name: _header_text(value) for name in _NAMES if (value := headers.get(f"ce-{name}")) is not None}
    _check_required([attributes.get(name) for name in _REQUIRED], None)
    check_tokens(body, limits)
    text = body.removeprefix(BOM).strip(WHITESPACE)
    if len(text) > limits.bundle_bytes:
        raise bundle_too_large(len(text), limits, 0)
    if text and (broken_at := json_end(np.frombuffer(text, np.uint8))) >= 0:
        raise not_json(text, broken_at)
    return FoundBundle(body, _described(attributes), (), text or None, described_apart=True)


def _check_required(values: Sequence[str | None], index: int | None) -> None:
    """Refuse what is no CloudEvent of the version that we know; ``values`` are those of what is required."""
    where = "this" if index is None else f"event {index}"
    if missing := [name for name, value in zip(_REQUIRED, values, strict=True) if not value]:
        message = f"{where} is no CloudEvent: it has no {', no '.join(missing)}; nothing was stored"
        raise BadBody(HTTPStatus.BAD_REQUEST, "not_a_cloudevent", message, index)
    if values[0] != SPEC_VERSION:
        message = f"{where} has specversion '{(values[0] or '')[:40]}'; {SPEC_VERSION} is known; nothing was stored"
        raise BadBody(HTTPStatus.BAD_REQUEST, "not_a_cloudevent", message, index)


def _described(attributes: Mapping[str, _Value]) -> dict[Header, _Value | None]:
    return {
        header: next((attributes[name] for name in names if name in attributes), None)
        for header, names in ATTRIBUTES.items()
    }


def _unpacked(value: bytes) -> Verbatim:
    """The JSON that a text in base64 holds; ``None`` if it holds none."""
    if not is_text(value):
        return None
    try:
        data = b64decode(text_of(value), validate=True).strip(WHITESPACE)
    except ValueError:
        return None
    return data if data and json_end(np.frombuffer(data, np.uint8)) < 0 else None


def _header_text(value: str) -> str:
    """What a header means: without quotes around it, and with what was percent-encoded."""
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = _QUOTED_PAIR.sub(r"\1", value[1:-1])
    return unquote(value)
