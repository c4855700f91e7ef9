"""Where a PostgreSQL database is, as its own tools take it: a URL, or ``host=... dbname=...``.

It may hold a password, so no message repeats any of it. What the driver could not read is refused here, with the file:
the driver's own message would quote the part that it stumbled over, which may be half of the password.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, SecretStr

_SCHEMES = ("postgresql://", "postgres://")
_SETTINGS = re.compile(
    r"(?:\s*\w+\s*=\s*(?:'(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)(?:[^\s\\]|\\.)*)?(?=\s|$))+\s*", re.DOTALL
)
_PORT = re.compile(r"port\s*=\s*'?([^\s']*)")
_ESCAPES = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*", re.DOTALL)
_HOST = re.compile(r"(?:\[[^\]@]*\]|[^:@\[\]]*)(?::\d*)?")


def _checked(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    scheme = next((known for known in _SCHEMES if text.startswith(known)), None)
    if scheme is None and "=" not in text:
        raise ValueError("not a PostgreSQL address; write postgresql://user:password@host:5432/database")
    if not (_is_url(text.removeprefix(scheme)) if scheme else _are_settings(text)):
        raise ValueError(
            "not an address that PostgreSQL can read; write postgresql://user:password@host:5432/database, with"
            " whatever is special in the password percent-encoded (@ is %40, / is %2F, % is %25)"
        )
    return value


def _is_url(text: str) -> bool:
    """Whether hosts, ports and escapes can be told apart; ``text`` is what follows the scheme."""
    authority = re.split(r"[/?]", text, maxsplit=1)[0]
    hosts = authority.partition("@")[2] if "@" in authority else authority
    return _ESCAPES.fullmatch(text) is not None and all(_HOST.fullmatch(host) for host in hosts.split(","))


def _are_settings(text: str) -> bool:
    ports = ",".join(_PORT.findall(text))
    return _SETTINGS.fullmatch(text) is not None and all(not port or port.isdigit() for port in ports.split(","))


PostgresUrl = Annotated[SecretStr, AfterValidator(_checked)]
