"""Which texts of a config are secret: the one place that knows.

Three looks, each of which finds what the others cannot: at the file as text, before it is read (a file that is no YAML
is quoted in errors too); at its values by the names of their keys, before they are checked; at the options as classes,
where a field that is a ``SecretStr`` is one whatever it is called. Of an address only what is secret in it counts: its
password, and parameters such as ``sslpassword``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote

from pydantic import BaseModel, SecretStr

from penstock.redaction import SECRET_NAME

_ADDRESS_NAME = re.compile(r"(?:^|[._-])(?:url|dsn|uri|conninfo)$", re.IGNORECASE)
_NO_SECRET_NAME = re.compile(
    r"(?:path|file|dir|location|_id|\.id|type)$|tokens$|^expose_|provider|regex", re.IGNORECASE
)
"""Names that look like a secret's but hold none: the path of a key, the id of a token."""
_WRITTEN = re.compile(r"""(?P<name>[\w.-]+)["']?\s*:\s*(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s,}\]#][^,}\]\n]*)""")
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)")
_USER_INFO = re.compile(r"[a-z][a-z0-9+.-]*://(?P<inside>\S*)@", re.IGNORECASE)
_SETTING = re.compile(r"""(?P<name>[\w.-]+)\s*=\s*(?P<value>'(?:[^'\\]|\\.)*'|"[^"]*"|[^\s&;,]+)""")
_YAML_SIGNS = "*&!@`|>%\"' "
_SPECIAL = re.compile(r"[@/?#:]")


def secrets_in_source(text: str, variables: Mapping[str, str]) -> Iterator[str]:
    """What looks like one in the text of a file, whether or not it is YAML, and what the variables that it names hold
    if their names say so."""
    for found in _WRITTEN.finditer(text):
        value = found["value"].strip()
        bare = value[1:-1] if value[:1] in "'\"" and value[-1:] == value[:1] else value.lstrip(_YAML_SIGNS)
        if "${" in bare:
            continue
        yield from _named(found["name"], bare)
        if value[:1] in _YAML_SIGNS and (words := bare.split()):
            # For YAML, what begins like a tag or an anchor ends at the first space; errors quote it up to there.
            yield from _named(found["name"], words[0])
    for loose in secrets_in_address(text):
        # One that lacks its key is not among the values; here brackets may follow it.
        if "${" not in loose:
            yield from (loose, loose.rstrip("}])'\""))
    for variable in _VARIABLE.finditer(text):
        value = variables.get(variable["name"], "")
        if is_secret_name(variable["name"]):
            yield value
        yield from secrets_in_address(value)


def secrets_in_values(value: object, name: str = "") -> Iterator[str]:
    """The secrets among the plain values of a config, by the names of their keys."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            # A value that lacks its key is taken for one.
            yield from _named("", str(key))
            inherited = name if is_secret_name(name) else str(key)
            yield from secrets_in_values(inner, inherited)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for item in value:
            yield from secrets_in_values(item, name)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield from _named(name, str(value))


def secrets_in_options(options: BaseModel) -> Iterator[str]:
    """The secrets among the options of a component, or of a whole pipeline."""
    for name, value in options:
        yield from _in_option(name, value)


def is_secret_name(name: str) -> bool:
    return SECRET_NAME.search(name) is not None and _NO_SECRET_NAME.search(name) is None


def secrets_in_address(text: str) -> Iterator[str]:
    """Passwords and secret parameters in an address, or in ``key=value`` settings, escaped and plain."""
    for found in _USER_INFO.finditer(text):
        password = found["inside"].partition(":")[2]
        if not password:
            continue
        yield password
        yield unquote(password)
        if _SPECIAL.search(password):
            # A special character is not escaped: a parser may take any piece for a host or a port.
            yield from _SPECIAL.split(password)
    for found in _SETTING.finditer(text):
        if is_secret_name(found["name"]):
            value = found["value"]
            yield value[1:-1].replace("\\'", "'").replace("\\\\", "\\") if value[:1] in "'\"" else value
            yield unquote(value)


def _in_option(name: str, value: object) -> Iterator[str]:
    if isinstance(value, SecretStr):
        text = value.get_secret_value()
        yield from secrets_in_address(text) if _ADDRESS_NAME.search(name) else (text,)
    elif isinstance(value, BaseModel):
        yield from secrets_in_options(value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _in_option(str(key), inner)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for item in value:
            yield from _in_option(name, item)
    elif isinstance(value, str):
        yield from _named(name, value)


def _named(name: str, value: str) -> Iterator[str]:
    if name.endswith("credentials") and "{" not in value:
        return  # the file that they are in
    if is_secret_name(name):
        yield value
    elif "=" in value or "://" in value:
        yield from secrets_in_address(value)
