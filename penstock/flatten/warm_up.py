"""Compile, or load from numba's cache, everything that works on JSON, before the first event waits for it."""

from __future__ import annotations

import pyarrow as pa

from penstock.flatten.table import flatten
from penstock.json.find import find

_DOCUMENTS = (
    b'{"s":"x","\\u0065":"\\u00e9","i":1,"f":1.5,"h":1.2345678901234567,"b":true,"a":[1, "x"],"o":{"n":null}}',
    b'{"_timestamp":"2026-01-01T00:00:00Z","t":"2026-01-01T00:00:00Z","A":2,"i":2,"d":"1.25","c":"7","g":"1.5","y":"true"}',
    b'{"i":1,"i":2',
    b"[1]",
)
_CASTS = {"/d": "numeric(12,2)", "/c": "bigint", "/g": "double", "/y": "boolean", "/s": "varchar(1)"}


def warm_up() -> None:
    """Takes about a second when the cache is there, most of a minute when it is not."""
    for kind in (pa.binary(), pa.large_binary()):
        documents = pa.array(_DOCUMENTS, kind)
        flatten(documents, _CASTS, infer_timestamps=True)
        find(documents, [("o", "n"), ("s",)])
