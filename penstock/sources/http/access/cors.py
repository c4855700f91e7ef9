"""CORS: which origins a token takes events from, and what browsers are told about it.

For a token without ``origins`` nothing is checked, and no header is sent. With them, a request by its client secret
that names another origin is refused. A request that names none passes: programs, apps and images send none, and whoever
can leave the header out can also forge it. A server secret is not bound to origins, and pages are not told that it
worked.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.sources.http.access.auth_tokens import Grant
from penstock.sources.http.access.origins import Origins
from penstock.sources.http.config import TokenConfig
from penstock.sources.http.responses import Answer, HeaderList

ALLOWED_HEADERS = (
    "content-type, content-encoding, authorization, x-auth-token, api_key, x-requested-with, x-retry-count"
)
PREFLIGHT_SECONDS = 7200
"""How long a browser may cache a preflight; none keeps it longer than a day, some not longer than this."""


class Cors:
    """The origins of all tokens."""

    def __init__(self, tokens: Iterable[TokenConfig]) -> None:
        self._origins = {token.id: Origins(token.origins) for token in tokens if token.origins}
        self.active = bool(self._origins)
        """Whether any token names origins; if not, a request's origin does not matter."""

    def forbids(self, grant: Grant, origin: str) -> bool:
        """Whether this secret may not be used by pages of this origin."""
        known = None if grant.server else self._origins.get(grant.token_id)
        return known is not None and not known.allow(origin)

    def shared(self, answer: Answer, grant: Grant | None, origin: str) -> Answer:
        """The answer to a page's request, readable by the page if its token allows it.

        Without a grant (the token is missing or wrong) it is enough that some token allows the origin: a page under
        development should see why it is refused.
        """
        headers = [*answer.headers, ("vary", "origin")]
        if self._opens(grant, origin):
            headers += [*_headers_allowing(origin), ("access-control-expose-headers", "retry-after")]
        return Answer(answer.status, headers, answer.body)

    def preflight(self, grant: Grant | None, origin: str | None, methods: str) -> Answer:
        """The answer to a browser's preflight. ``grant`` is that of a token in the query, if there is one: a preflight
        carries no other, so without it some token must allow the origin."""
        headers: HeaderList = [("allow", methods)]
        if self.active:
            headers.append(("vary", "origin, access-control-request-method, access-control-request-headers"))
        if origin is not None and self._opens(grant, origin):
            headers += _headers_allowing(origin)
            headers.append(("access-control-allow-methods", methods))
            headers.append(("access-control-allow-headers", ALLOWED_HEADERS))
            headers.append(("access-control-max-age", str(PREFLIGHT_SECONDS)))
        return Answer(204, headers, b"")

    def _opens(self, grant: Grant | None, origin: str) -> bool:
        if grant is None:
            return any(known.allow(origin) for known in self._origins.values())
        known = None if grant.server else self._origins.get(grant.token_id)
        return known is not None and known.allow(origin)


def _headers_allowing(origin: str) -> HeaderList:
    # sendBeacon and some libraries always send "with credentials"; we set no cookies.
    return [("access-control-allow-origin", origin), ("access-control-allow-credentials", "true")]
