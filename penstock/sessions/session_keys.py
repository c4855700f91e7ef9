"""Which session an event belongs to: the one of the values that it has in the fields by which events are grouped.

A key is a digest, so that it has the same length whatever the values are. The file of the log and the host are always
part of it: what comes from two of them need not stay in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import orjson

SERVER_HOST = "serverHost"
LOG_FILE = "logfile"
_ALWAYS = (LOG_FILE, SERVER_HOST)
_DELIMITER = "___DELIM___"

Value = object
"""What JSON can hold."""


def key_fields(group_by: Sequence[str]) -> tuple[str, ...]:
    """The fields of a key, in their order."""
    return tuple(dict.fromkeys((*group_by, *_ALWAYS)))


def session_key(fields: Sequence[str], values: Mapping[str, Value]) -> str:
    """The key of an event with these values; a field without a value counts as an empty text."""
    texts = [value_text(values.get(field)) for field in fields]
    text = "".join(f"{field}:{text}{_DELIMITER}" for field, text in zip(fields, texts, strict=True))
    if any(_DELIMITER in each for each in texts):
        # Otherwise a value could be written so that its event comes under the key, and the values, of another.
        text += ",".join(str(len(each)) for each in texts)
    return hashlib.md5(text.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()


def value_text(value: Value) -> str:
    """A text as it is, nothing as an empty text, and all else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else orjson.dumps(value).decode()


def share_of(key: str, number: int, shares: int) -> str:
    """The key of one of the sessions over which the events of a key are spread, by a number that the event has."""
    return key if shares == 1 else f"{key}-{number % shares}"


def session_name(client_id: str, key: str) -> str:
    return f"{client_id}-{key}"
