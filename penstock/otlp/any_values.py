"""Values and times of OTLP messages as JSON has them.

Every value is exact: 64-bit integers never become doubles, doubles have the fewest digits that lead back to them, and
NaN and the infinities, which JSON lacks, are the strings ``NaN``, ``Infinity`` and ``-Infinity``. Bytes are Base64.
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Iterable
from functools import lru_cache

import orjson
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]

_SECOND = 1_000_000_000


def attributes_object(attributes: Iterable[KeyValue]) -> dict[str, Json]:
    """Of attributes with the same key the first one counts, as it does to conditions (``attributes.py``)."""
    found: dict[str, Json] = {}
    for each in attributes:
        if each.key in found:
            continue
        value = each.value
        # Most are text: one call less for each of them.
        found[each.key] = value.string_value if value.WhichOneof("value") == "string_value" else any_value(value)
    return found


def any_value(value: AnyValue) -> Json:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind == "int_value":
        return value.int_value
    if kind == "bool_value":
        return value.bool_value
    if kind == "double_value":
        return _double(value.double_value)
    if kind == "array_value":
        return [any_value(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return attributes_object(value.kvlist_value.values)
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    # Nothing, or the index of a text in a dictionary that only profiles have.
    return None


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def text_of(value: Json) -> str:
    return orjson.dumps(value).decode()


def moment(nanos: int) -> str | None:
    """With six digits of a second; the rest is cut off."""
    seconds, rest = divmod(nanos, _SECOND)
    return f"{second_text(seconds)}.{rest // 1000:06d}Z" if nanos else None


def exact_moment(nanos: int) -> str | None:
    """With nine."""
    seconds, rest = divmod(nanos, _SECOND)
    return f"{second_text(seconds)}.{rest:09d}Z" if nanos else None


@lru_cache(maxsize=4_096)
def second_text(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
