"""The measurement protocol over HTTP. No message quotes the URL, because it contains the secret."""

from __future__ import annotations

import http.client
import json
from typing import NamedTuple, Self
from urllib.parse import urlencode, urlsplit

from penstock.destinations.ga4.config import Ga4Config
from penstock.destinations.ga4.server_clock import ServerClock
from penstock.errors import TransientError

COLLECT, VALIDATE = "/mp/collect", "/debug/mp/collect"
PROBE = b'{"client_id":"penstock","events":[{"name":"penstock_check","params":{}}]}'
"""A request that nobody keeps, for the validation server."""
_TRY_AGAIN = frozenset((401, 403, 404, 408, 425, 429))
"""These, and 500 and above: not now, or not until somebody fixes the config. Any other 4xx concerns the events."""


_CLOSED = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


class Answer(NamedTuple):
    refused: str | None
    """Why the events will never be accepted."""
    messages: tuple[str, ...] = ()
    """What the validation server says."""


class Client:
    """One connection, kept open; the clock is set by its answers. Every call may raise ``TransientError``."""

    def __init__(self, config: Ga4Config, clock: ServerClock | None = None) -> None:
        self._clock = clock or ServerClock()
        where = urlsplit(config.endpoint)
        self._host = where.netloc
        kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(where.netloc, timeout=config.timeout)
        query = {"measurement_id": config.measurement_id, "api_secret": config.api_secret.get_secret_value()}
        self._prefix, self._query = where.path, urlencode(query)
        self._kept_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, body: bytes, path: str = COLLECT) -> Answer:
        status, text = self._post(body, path)
        if status >= 500 or status in _TRY_AGAIN or 300 <= status < 400:
            raise _unreachable(f"{self._host} answers {status}")
        if status >= 400:
            return Answer(f"{self._host} answers {status}")
        return Answer(None, _messages(text) if path == VALIDATE else ())

    def ask_time(self) -> None:
        """Set the clock by an answer, whatever it says: an endpoint of one's own may have no validation server."""
        self._post(PROBE, VALIDATE)

    def _post(self, body: bytes, path: str) -> tuple[int, bytes]:
        try:
            return self._post_once(body, path)
        except (OSError, http.client.HTTPException) as error:
            if not (self._kept_open and isinstance(error, _CLOSED)):
                raise self._connection_lost(error) from error
        # The kept-alive connection may have been closed before this request: try a new one.
        self._connection.close()
        try:
            return self._post_once(body, path)
        except (OSError, http.client.HTTPException) as error:
            raise self._connection_lost(error) from error

    def _post_once(self, body: bytes, path: str) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", f"{self._prefix}{path}?{self._query}", body, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        self._clock.observe(answer.headers["Date"])
        self._kept_open = not answer.will_close
        return answer.status, text

    def _connection_lost(self, error: Exception) -> TransientError:
        self._connection.close()
        self._kept_open = False
        return _unreachable(f"{self._host} does not answer: {error or type(error).__name__}")


def _messages(text: bytes) -> tuple[str, ...]:
    try:
        found = json.loads(text or b"{}").get("validationMessages", [])
        return tuple(f"{each.get('validationCode', '?')}: {each.get('description', '')}" for each in found)
    except (ValueError, AttributeError) as error:
        raise _unreachable(f"the validation server gives an answer that cannot be read: {error}") from error


def _unreachable(what: str) -> TransientError:
    return TransientError(
        "PEN-DST-120",
        f"Google Analytics cannot be reached: {what}.",
        "Check the network and `endpoint`; it is tried again.",
    )
