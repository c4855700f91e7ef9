"""Who sends: finds the token of a request in its headers, before its body is read."""

from __future__ import annotations

from http import HTTPStatus

from penstock.sources.http.access.auth_tokens import Grant, Headers, TokenTable, presented_secret
from penstock.sources.http.responses import Refused, refusal
from penstock.sources.otlp.config import OtlpConfig

_CHALLENGE = ("www-authenticate", 'Bearer realm="penstock"')
NO_TOKEN = refusal(
    HTTPStatus.UNAUTHORIZED, "no_token", "no token; send it as header Authorization: Bearer or X-Auth-Token", _CHALLENGE
)
UNKNOWN_TOKEN = refusal(
    HTTPStatus.UNAUTHORIZED, "unknown_token", "unknown token; check it against `tokens` in the config", _CHALLENGE
)


class Senders:
    """The tokens of the config. Without any, everybody may send, and nobody has a name."""

    def __init__(self, config: OtlpConfig) -> None:
        self._tokens = TokenTable(config.tokens)
        self._anybody = not config.tokens

    def admit(self, query: str, headers: Headers) -> Grant | None:
        """The grant of a request's token; ``Refused`` if it needs one and has none, or a wrong one."""
        if self._anybody:
            return None
        secret = _bearer(headers.get("authorization")) or presented_secret(query, headers)
        if secret is None:
            raise Refused(NO_TOKEN)
        grant = self._tokens.grant(secret)
        if grant is None:
            raise Refused(UNKNOWN_TOKEN)
        return grant


def _bearer(authorization: str | None) -> str | None:
    scheme, _, secret = (authorization or "").partition(" ")
    return secret.strip() or None if scheme.lower() == "bearer" else None
