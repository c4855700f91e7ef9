"""The address of a database, in its tools' own forms: a URL, or PostgreSQL's ``host=... dbname=...``.

It may hold a password, so no message repeats any of it. What a driver could not read, or would misread, is refused
here, with the file: after an unescaped ``@`` in a password the driver takes the rest for a host, and names it.
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


def check_url(text: str, example: str) -> None:
    """Raises ``ValueError`` unless the parts of a URL are unambiguous."""
    rest = text.partition("://")[2]
    authority, _, behind = re.split(r"([/?#])", rest, maxsplit=1) if re.search(r"[/?#]", rest) else (rest, "", "")
    hosts = authority.partition("@")[2] if "@" in authority else authority
    if (
        "#" in rest
        or "@" in behind
        or _ESCAPES.fullmatch(rest) is None
        or not all(_HOST.fullmatch(host) and _is_port(host) for host in hosts.split(","))
    ):
        raise ValueError(
            f"not an address whose parts can be told apart; write {example}, with whatever is special in the user, the"
            " password and the parameters percent-encoded (@ is %40, / is %2F, ? is %3F, # is %23, : is %3A, % is %25),"
            " and a port of 1 to 65535"
        )


def _is_port(host: str) -> bool:
    port = host.rpartition("]")[2].partition(":")[2]
    return not port or 0 < int(port) < 65_536


def check_postgres_address(text: str, example: str = "postgresql://user:password@host:5432/database") -> None:
    """Raises ``ValueError`` unless it is the address of a PostgreSQL database, or a compatible one."""
    if text.startswith(_SCHEMES):
        check_url(text, example)
    elif "=" not in text:
        raise ValueError(f"not a PostgreSQL address; write {example}")
    elif not _are_settings(text):
        raise ValueError(
            f"not an address that PostgreSQL can read; write {example}, or host=... dbname=... with a value that has"
            " spaces, quotes or backslashes in single quotes, and a backslash before each quote and backslash"
        )


def _checked(value: SecretStr) -> SecretStr:
    check_postgres_address(value.get_secret_value())
    return value


def _are_settings(text: str) -> bool:
    ports = ",".join(_PORT.findall(text))
    return _SETTINGS.fullmatch(text) is not None and all(not port or port.isdigit() for port in ports.split(","))


PostgresUrl = Annotated[SecretStr, AfterValidator(_checked)]
