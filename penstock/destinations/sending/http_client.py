"""HTTP requests in one event loop, over connections that are kept while the client is open."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import aiohttp
from yarl import URL

from penstock.destinations.sending.request_protocol import Answer, NoAnswer, Request
from penstock.errors import TransientError

MOST_ANSWER = 1 << 20
"""Bytes of an answer that are read; none that is meant for a program has more."""


def trusted_by(ca: Path) -> ssl.SSLContext:
    """Raises ``TransientError`` if these certificates cannot be read."""
    try:
        return ssl.create_default_context(cafile=str(ca))
    except OSError as error:  # also of certificates that are none
        raise TransientError(
            "PEN-DST-132", f"the certificates in {ca} cannot be read: {error}.", "Name a PEM file in `ca`."
        ) from None


@dataclass
class HttpClient:
    """Redirects are answers as any other. Safe for many requests at a time."""

    timeout: float
    """Seconds for a request, from the connection to the end of the answer."""
    ca: Path | None = None
    """Certificates to trust instead of the system's."""
    _session: aiohttp.ClientSession | None = field(default=None, init=False)

    async def __aenter__(self) -> Self:
        trusted = True if self.ca is None else trusted_by(self.ca)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trusted),
            timeout=aiohttp.ClientTimeout(total=self.timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None, "it was opened"
        await self._session.close()

    async def send(self, request: Request) -> Answer:
        """Raises ``NoAnswer``."""
        assert self._session is not None, "it was opened"
        try:
            async with self._session.request(
                request.method,
                URL(request.url, encoded=True),
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
            ) as response:
                body = await response.content.read(MOST_ANSWER)
                while len(body) < MOST_ANSWER and (more := await response.content.read(MOST_ANSWER - len(body))):
                    body += more
                return Answer(response.status, {name.lower(): text for name, text in response.headers.items()}, body)
        except TimeoutError:
            raise NoAnswer(f"there was no answer within {self.timeout:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(str(error) or type(error).__name__) from error
