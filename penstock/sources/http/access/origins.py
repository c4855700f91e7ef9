"""Which web origins a token's list allows. The forms of an entry are checked when the config is read.

``https://shop.example`` is that origin and no other, ``shop.example`` that host by any scheme and port,
``*.shop.example`` every host below it (not itself), ``https://*.shop.example`` those by one scheme, ``*`` everything,
also the ``null`` of pages without an origin. A default port is no port, and case does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

ANY = "*"
_ENTRY = re.compile(
    r"(?:(?P<scheme>[a-z][a-z0-9+.-]*)://)?"
    r"(?P<host>(?:\*\.)?[a-z0-9_-][a-z0-9._-]*|\[[0-9a-f:.]+\])"
    r"(?::(?P<port>\d{1,5}))?"
)
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def checked_origin(entry: str) -> str:
    """An entry of ``origins`` as browsers would write it."""
    text = entry.strip().lower()
    if text in (ANY, "null"):
        return text
    found = _ENTRY.fullmatch(text)
    if found is None:
        raise ValueError(
            f"'{entry}' is no web origin; write https://shop.example (no path), shop.example, *.shop.example or *"
        )
    scheme, host, port = found["scheme"], found["host"], found["port"]
    if port is not None and port != _DEFAULT_PORTS.get(scheme or ""):
        host = f"{host}:{port}"
    return f"{scheme}://{host}" if scheme else host


class Origins:
    """The origins of one token."""

    def __init__(self, entries: Iterable[str]) -> None:
        known = set(entries)
        self._any = ANY in known
        self._exact = frozenset(entry for entry in known if "*" not in entry)
        self._suffixes = tuple(
            (scheme, host.removeprefix("*"))
            for scheme, _, host in (entry.rpartition("://") for entry in known - {ANY})
            if host.startswith("*.")
        )

    def allow(self, origin: str) -> bool:
        """``origin`` is the request's header."""
        if self._any:
            return True
        origin = origin.lower()
        if origin in self._exact:
            return True
        scheme, separator, authority = origin.partition("://")
        if not separator:
            return False
        host = re.sub(r":\d+$", "", authority)
        if host in self._exact or authority in self._exact:
            return True
        return any(
            wanted in ("", scheme) and (host.endswith(suffix) or authority.endswith(suffix))
            for wanted, suffix in self._suffixes
        )
