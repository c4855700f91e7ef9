"""The collector's answers: status, headers and body, prebuilt where they never change."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from math import ceil
from typing import NamedTuple

import orjson

from penstock.sources.http.body.body_events import BadBody

HeaderList = list[tuple[str, str]]

_JSON: HeaderList = [("content-type", "application/json")]
RETRY_AFTER_SECONDS = 1


class Answer(NamedTuple):
    status: int
    headers: HeaderList
    body: bytes


class Refused(Exception):
    """A request ends here, with this answer; nothing of it was taken."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def accepted(events: int) -> Answer:
    return ONE_ACCEPTED if events == 1 else Answer(200, _JSON, b'{"status":"ok","accepted":%d}' % events)


def accepted_lines(events: int, malformed: int) -> Answer:
    return Answer(200, _JSON, b'{"status":"ok","accepted":%d,"malformed":%d}' % (events, malformed))


def accepted_bundles(bundles: int, malformed: int, reasons: Sequence[str]) -> Answer:
    """``reasons`` are those of the first malformed ones."""
    if not malformed:
        return accepted(bundles)
    body = {"status": "ok", "accepted": bundles, "malformed": malformed, "reasons": list(reasons)}
    return Answer(200, _JSON, orjson.dumps(body))


def refusal(status: HTTPStatus, code: str, message: str, *headers: tuple[str, str], index: int | None = None) -> Answer:
    body: dict[str, str | int] = {"status": "error", "code": code, "message": message}
    if index is not None:
        body["index"] = index
    return Answer(status, [*_JSON, *headers], orjson.dumps(body))


def bad_body(error: BadBody) -> Answer:
    return refusal(error.status, error.code, error.message, index=error.index)


def closing(answer: Answer) -> Answer:
    """The same answer, which also closes the connection: the rest of the body was not read."""
    return Answer(answer.status, [*answer.headers, ("connection", "close")], answer.body)


def ready(engine: str) -> Answer:
    """Events are taken. The answer also gives the engine's state: without an engine they are safe, and wait."""
    return Answer(200, _JSON, orjson.dumps({"status": "ready", "engine": engine}))


def retry_later(code: str, message: str) -> Answer:
    """503: nothing was stored, and the same request may work soon."""
    return refusal(HTTPStatus.SERVICE_UNAVAILABLE, code, message, ("retry-after", str(RETRY_AFTER_SECONDS)))


def destination_failing(why: str, seconds: float) -> Answer:
    """503, because the sender is to keep what the pipeline cannot deliver."""
    message = f"{why}; nothing was stored; send it again"
    return refusal(HTTPStatus.SERVICE_UNAVAILABLE, "destination_failing", message, ("retry-after", str(ceil(seconds))))


def _unauthorized(code: str, message: str) -> Answer:
    return refusal(HTTPStatus.UNAUTHORIZED, code, message, ("www-authenticate", 'Token realm="penstock"'))


ONE_ACCEPTED = Answer(200, _JSON, b'{"status":"ok","accepted":1}')
NO_TOKEN = _unauthorized(
    "no_token", "no token; send it as query parameter token, header X-Auth-Token, header api_key or Basic auth user"
)
NO_KEY_NEARBY = _unauthorized(
    "no_token",
    "no token in query or headers, and no writeKey near the start of the body; send it as Basic auth user, or first in"
    " the body",
)
UNKNOWN_TOKEN = _unauthorized("unknown_token", "unknown token; check it against `tokens` in the config")
CLIENT_TOKEN_ON_SERVER_API = _unauthorized(
    "client_token", "this is a client secret; the server API wants a server token: use the token's server_secret"
)
SERVER_TOKEN_IN_BROWSER = _unauthorized(
    "server_token", "this is a server secret; keep it out of web pages and use the token's client_secret here"
)
FOREIGN_ORIGIN = refusal(
    HTTPStatus.FORBIDDEN,
    "origin_not_allowed",
    "the token does not take events from pages of this origin; nothing was stored. Its origins are in the config",
)
TOO_MANY_SEARCHES = closing(
    refusal(
        HTTPStatus.TOO_MANY_REQUESTS,
        "too_many_searches",
        "too many requests without a token; nothing was stored; send it again, better with the key as Basic auth user",
        ("retry-after", str(RETRY_AFTER_SECONDS)),
    )
)
NOT_FOUND = refusal(HTTPStatus.NOT_FOUND, "not_found", "there is nothing here; see /openapi.json")
OVERLOADED = retry_later("overloaded", "too much is waiting for the disk; nothing was stored; send it again")
LOG_FULL = retry_later("log_full", "the disk is full; nothing was stored; send it again")
LOG_FAILED = retry_later("log_failed", "the log cannot be written; nothing was stored; send it again")
NOT_READY = retry_later("not_ready", "the collector is starting or stopping; nothing was stored; send it again")

ALIVE = Answer(200, _JSON, b'{"status":"ok"}')
BODY_TIMEOUT = closing(
    refusal(HTTPStatus.REQUEST_TIMEOUT, "body_timeout", "the body did not arrive in time; nothing was stored")
)
BROKEN_OFF = closing(
    refusal(HTTPStatus.BAD_REQUEST, "body_broken_off", "the body ends before it is complete; nothing was stored")
)
FAILED = refusal(
    HTTPStatus.INTERNAL_SERVER_ERROR,
    "internal",
    "the collector failed on this request; nothing was stored; send it again",
)


def too_large(limit: int) -> Answer:
    message = (
        f"the body is larger than {limit} bytes; nothing was stored; send it in smaller requests or raise"
        " `limits.body_bytes`"
    )
    return closing(refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_large", message))


def too_large_with_context(limit: int) -> Answer:
    message = (
        f"the events, each with what is added about its sender, are larger than {limit} bytes; nothing was stored; send"
        " fewer in a request"
    )
    return closing(refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "events_too_large", message))


def bad_encoding(message: str, known: bool) -> Answer:
    if known:
        return refusal(HTTPStatus.BAD_REQUEST, "damaged_body", message)
    return refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unknown_encoding", message, ("accept-encoding", "gzip, zstd"))


def wrong_method(allowed: str) -> Answer:
    return refusal(HTTPStatus.METHOD_NOT_ALLOWED, "wrong_method", f"use {allowed} here", ("allow", allowed))


def refusal_message(answer: Answer) -> str:
    """What a refusal says, for protocols with another form of errors."""
    message: str = orjson.loads(answer.body)["message"]
    return message
