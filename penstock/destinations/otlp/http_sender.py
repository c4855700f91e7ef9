"""OTLP over HTTP: a connection, and what its answers mean. No message quotes the headers, because they are secrets."""

from __future__ import annotations

import gzip
import http.client
import ssl
import time
from email.utils import parsedate_to_datetime
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from penstock.destinations.otlp.config import Compression, OtlpConfig
from penstock.errors import PenstockError, TransientError
from penstock.otlp.json_requests import Signal
from penstock.otlp.request_bytes import PROTOBUF
from penstock.otlp.request_pieces import bytes_field
from penstock.redaction import redacted

_RETRYABLE = frozenset((429, 502, 503, 504))
"""What the specification calls retryable."""
_CONFIG_IS_WRONG = frozenset((401, 403, 404, 405, 407, 408))
"""Not until somebody fixes the config, or the target's; the data is not to blame. So are redirects."""
_CLOSED = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)
_LEVEL = 1
"""Of gzip. Higher ones save a little of the network and take several times as long."""
_LONGEST_TEXT = 300
LONGEST_PAUSE = 300.0
"""Seconds for which a target can ask to be left alone."""


class Answer(NamedTuple):
    """``status`` is that of HTTP."""

    status: int
    refused: str | None = None
    """Why the request will never be accepted as it is."""
    rejected: int = 0
    """How many entries (for metrics: data points) were not accepted; it is not said which."""
    message: str = ""
    """What the target says about an accepted request."""


class Busy(TransientError):
    """The target says that it cannot take requests now, and perhaps for how long."""

    def __init__(self, what: str, pause: float) -> None:
        super().__init__(
            "PEN-DST-130",
            f"the OTLP endpoint does not take requests now: {what}.",
            "It is tried again. If it stays so, look at the health and the limits of the target.",
        )
        self.pause = pause
        """Seconds; 0 if it does not say."""


class Sender:
    """One connection, kept open between requests. Every call may raise ``TransientError``."""

    def __init__(self, config: OtlpConfig) -> None:
        where = urlsplit(config.endpoint)
        self._host, self._prefix = where.netloc, where.path
        self._connection = _connection(config)
        self._gzip = config.compression is Compression.GZIP
        self._headers = {name: value.get_secret_value() for name, value in config.headers.items()}
        self._headers |= {"Content-Type": PROTOBUF, "Accept": PROTOBUF}
        self._headers |= {"Content-Encoding": "gzip"} if self._gzip else {}
        self._kept_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, signal: Signal, body: bytes) -> Answer:
        packed = gzip.compress(body, _LEVEL, mtime=0) if self._gzip else body
        status, headers, text = self._post(f"{self._prefix}/v1/{signal}", packed)
        if 200 <= status < 300:
            return _accepted(status, text)
        said = f"{self._host} answers {status}{_words(text, headers)}"
        if status in _RETRYABLE:
            raise Busy(said, _pause(headers["Retry-After"]))
        if status in _CONFIG_IS_WRONG or 300 <= status < 400:
            raise _unreachable(said)
        return Answer(status, refused=said)

    def _post(self, path: str, body: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        try:
            return self._post_once(path, body)
        except (OSError, http.client.HTTPException) as error:
            if not (self._kept_open and isinstance(error, _CLOSED)):
                raise self._connection_lost(error) from error
        # The kept-alive connection may have been closed before this request: try a new one.
        self._connection.close()
        try:
            return self._post_once(path, body)
        except (OSError, http.client.HTTPException) as error:
            raise self._connection_lost(error) from error

    def _post_once(self, path: str, body: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        try:
            self._connection.request("POST", path, body, self._headers)
        except (BrokenPipeError, ConnectionResetError):
            # A target may answer, and hang up, before it has read all of a body that is too large.
            if self._connection.sock is None:
                raise
        answer = self._connection.getresponse()
        text = answer.read()
        self._kept_open = not answer.will_close
        return answer.status, answer.headers, text

    def _connection_lost(self, error: Exception) -> TransientError:
        self._connection.close()
        self._kept_open = False
        return _unreachable(f"{self._host} does not answer: {error or type(error).__name__}")


def _connection(config: OtlpConfig) -> http.client.HTTPConnection:
    where = urlsplit(config.endpoint)
    if where.scheme == "http":
        return http.client.HTTPConnection(where.netloc, timeout=config.timeout)
    try:
        trusted = ssl.create_default_context(cafile=config.ca)
    except (OSError, ssl.SSLError) as error:
        raise PenstockError(
            "PEN-DST-132", f"the certificates in {config.ca} cannot be read: {error}.", "Name a PEM file in `ca`."
        ) from error
    return http.client.HTTPSConnection(where.netloc, timeout=config.timeout, context=trusted)


def _accepted(status: int, text: bytes) -> Answer:
    """The answers of all signals have the same form. What cannot be read says nothing: the status counts."""
    try:
        partial = ExportTraceServiceResponse.FromString(text).partial_success
    except DecodeError:
        return Answer(status)
    return Answer(status, rejected=max(0, partial.rejected_spans), message=_short(partial.error_message))


def _words(text: bytes, headers: http.client.HTTPMessage) -> str:
    """What an answer says about an error: a message of protobuf (``google.rpc.Status``), or text."""
    if headers.get_content_type() == PROTOBUF:
        try:
            text = bytes_field(text, 2)
        except ValueError:
            text = b""
    words = _short(text.decode("utf-8", "replace"))
    return f": {words}" if words else ""


def _short(text: str) -> str:
    words = redacted(" ".join(text.split()))
    return words if len(words) <= _LONGEST_TEXT else f"{words[:_LONGEST_TEXT]}..."


def _pause(retry_after: str | None) -> float:
    """The seconds of a ``Retry-After``, which has a number of them or a date."""
    text = (retry_after or "").strip()
    if text.isdecimal():
        return min(float(text), LONGEST_PAUSE)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), LONGEST_PAUSE)


def _unreachable(what: str) -> TransientError:
    return TransientError(
        "PEN-DST-131",
        f"the OTLP endpoint cannot be reached: {what}.",
        "Check the network, `endpoint` and `headers`; it is tried again.",
    )
