"""OTLP/JSON requests in the protobuf encoding.

``to_protobuf`` is strict where the OTLP specification is (ids in hex, enums as integers, keys in lowerCamelCase) and
lenient where it wants that (unknown keys are ignored, null is absence, 64-bit integers come as numbers or as texts). It
is a pure function: the same bytes give the same bytes, whoever calls it and whenever, with fields in the order of their
numbers. What it returns, protobuf can read: it refuses what is nested deeper than protobuf allows.

The rules come from protobuf's own descriptors, so there is one table per message type and no code per field.
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode
from binascii import Error as NotBase64
from binascii import unhexlify
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import NamedTuple

import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

DEEPEST = 100
"""Levels of messages below the request that protobuf reads."""
SHOWN = 60
"""Characters of a wrong value that an error shows."""

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


class Signal(StrEnum):
    """What a request carries."""

    TRACES = "traces"
    LOGS = "logs"
    METRICS = "metrics"


class BadJsonRequest(ValueError):
    """A request that OTLP/JSON does not allow. ``path`` is the place of what is wrong, from the outside in."""

    def __init__(self, problem: str, path: tuple[str | int, ...] = ()) -> None:
        self.problem = problem
        self.path = path
        super().__init__(problem)

    def __str__(self) -> str:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path).lstrip(".")
        return f"{place}: {self.problem}" if place else self.problem

    def inside(self, *steps: str | int) -> BadJsonRequest:
        """The same problem, seen from further out."""
        return BadJsonRequest(self.problem, (*steps, *self.path))


def to_protobuf(signal: Signal | str, body: bytes) -> bytes:
    """The request of this signal in the protobuf encoding. Raises ``BadJsonRequest``."""
    try:
        value: Json = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadJsonRequest(f"not JSON: {error}") from None
    return _message(value, _table(_REQUESTS[Signal(signal)]), DEEPEST)


_REQUESTS: Mapping[Signal, Descriptor] = {
    Signal.TRACES: ExportTraceServiceRequest.DESCRIPTOR,
    Signal.LOGS: ExportLogsServiceRequest.DESCRIPTOR,
    Signal.METRICS: ExportMetricsServiceRequest.DESCRIPTOR,
}
_HEX_IDS = frozenset(("trace_id", "span_id", "parent_span_id"))

Encode = Callable[[Json], bytes]
"""The wire form of one value, without its tag; ``BadJsonRequest`` if it is no such value."""


class _Field(NamedTuple):
    """How one field of a message is read and written."""

    key: str
    tag: bytes
    encode: Encode | None
    """None for a message."""
    message: Descriptor | None
    delimited: bool
    """Whether its length goes before it (texts and bytes)."""
    repeated: bool
    packed: bool
    choice: str | None
    """The name of the oneof that it belongs to: such a field is written even if it is 0."""
    default: bytes


@cache
def _table(message: Descriptor) -> tuple[_Field, ...]:
    return tuple(_field(field) for field in sorted(message.fields, key=lambda field: field.number))


def _field(field: FieldDescriptor) -> _Field:
    is_message = field.message_type is not None
    delimited = field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
    encode, wire, default = (None, 2, b"") if is_message else _SCALARS[field.type]
    if field.type == FieldDescriptor.TYPE_BYTES and field.name in _HEX_IDS:
        encode = _hex
    packed = field.is_repeated and not is_message and not delimited
    oneof = field.containing_oneof
    return _Field(
        key=field.json_name,
        tag=_varint(field.number << 3 | (2 if packed else wire)),
        encode=encode,
        message=field.message_type,
        delimited=delimited,
        repeated=field.is_repeated,
        packed=packed,
        choice=oneof.name if oneof is not None else None,
        default=default,
    )


def _message(value: Json, table: tuple[_Field, ...], levels: int) -> bytes:
    """The encoding of a message, without tag and length. ``levels`` are left for what is in it."""
    if not isinstance(value, dict):
        raise _wrong(value, "an object")
    if levels < 0:
        raise BadJsonRequest(f"nested deeper than {DEEPEST} messages, which protobuf does not read")
    # Not a list to be joined: joining needs ten times the memory of a short part.
    out = bytearray()
    chosen: dict[str, str] = {}
    for field in table:
        given = value.get(field.key)
        if given is None:
            continue
        if field.choice is not None and (other := chosen.setdefault(field.choice, field.key)) != field.key:
            raise BadJsonRequest(f"has both {other} and {field.key}, of which there can be one")
        try:
            if field.repeated:
                _append_list(given, field, levels, out)
            else:
                _append_one(given, field, levels, out)
        except BadJsonRequest as error:
            raise error.inside(field.key) from None
    return bytes(out)


def _append_one(given: Json, field: _Field, levels: int, out: bytearray) -> None:
    if field.encode is None:
        assert field.message is not None
        encoded = _message(given, _table(field.message), levels - 1)
        out += field.tag + _varint(len(encoded)) + encoded
        return
    encoded = field.encode(given)
    if encoded == field.default and field.choice is None:
        return
    out += field.tag + _varint(len(encoded)) + encoded if field.delimited else field.tag + encoded


def _append_list(given: Json, field: _Field, levels: int, out: bytearray) -> None:
    if not isinstance(given, list):
        raise _wrong(given, "an array")
    packed = bytearray()
    encode, table = field.encode, _table(field.message) if field.message is not None else ()
    for index, element in enumerate(given):
        try:
            encoded = _message(element, table, levels - 1) if encode is None else encode(element)
        except BadJsonRequest as error:
            raise error.inside(index) from None
        if field.packed:
            packed += encoded
        else:
            out += field.tag + _varint(len(encoded)) + encoded
    if packed:
        out += field.tag + _varint(len(packed)) + packed


def _wrong(value: Json, expected: str) -> BadJsonRequest:
    shown = orjson.dumps(value).decode() if not isinstance(value, (dict, list)) else type(value).__name__
    shown = {"dict": "an object", "list": "an array"}.get(shown, shown)
    return BadJsonRequest(f"{shown if len(shown) <= SHOWN else shown[:SHOWN] + '...'} where {expected} was expected")


_SHORT_VARINTS = [bytes([number]) for number in range(128)]


def _varint(number: int) -> bytes:
    if number < 128:
        return _SHORT_VARINTS[number]
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_DECIMAL = re.compile(r"-?[0-9]{1,20}")
_EXACT = 2**53
"""Below this, a number that JSON writes with a point or an exponent is the integer that was meant."""


def _integer(value: Json, least: int, most: int) -> int:
    if type(value) is not int and not _is_integer(value):
        raise _wrong(value, "an integer")
    assert isinstance(value, (int, float, str))
    number = int(value)
    if not least <= number <= most:
        raise _wrong(value, f"an integer from {least} to {most}")
    return number


def _is_integer(value: Json) -> bool:
    """Whether an integer is written in another way than as one."""
    if type(value) is str:
        return _DECIMAL.fullmatch(value) is not None
    return type(value) is float and value.is_integer() and -_EXACT < value < _EXACT


def _signed_varint(bits: int) -> Encode:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return lambda value: _varint(_integer(value, least, most) & 0xFFFF_FFFF_FFFF_FFFF)


def _unsigned_varint(bits: int) -> Encode:
    most = 2**bits - 1
    return lambda value: _varint(_integer(value, 0, most))


def _zigzag(bits: int) -> Encode:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def encode(value: Json) -> bytes:
        number = _integer(value, least, most)
        return _varint(number << 1 if number >= 0 else (-number << 1) - 1)

    return encode


def _fixed(form: str, least: int, most: int) -> Encode:
    pack = struct.Struct(form).pack
    return lambda value: pack(_integer(value, least, most))


def _enum(value: Json) -> bytes:
    if type(value) is not int:
        raise _wrong(value, "an integer (enums are numbers in OTLP/JSON)")
    return _varint(_integer(value, -(2**31), 2**31 - 1) & 0xFFFF_FFFF_FFFF_FFFF)


def _bool(value: Json) -> bytes:
    if value is True:
        return b"\x01"
    if value is False:
        return b"\x00"
    raise _wrong(value, "true or false")


_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_pack_double = struct.Struct("<d").pack


def _double(value: Json) -> bytes:
    if type(value) is float or type(value) is int:
        return _pack_double(float(value))
    if type(value) is str:
        if value in _NOT_FINITE:
            return _pack_double(_NOT_FINITE[value])
        if len(value) <= SHOWN and _NUMBER.fullmatch(value) and abs(number := float(value)) != float("inf"):
            return _pack_double(number)
    raise _wrong(value, "a number, NaN, Infinity or -Infinity")


def _text(value: Json) -> bytes:
    if type(value) is not str:
        raise _wrong(value, "a text")
    return value.encode()


def _hex(value: Json) -> bytes:
    if type(value) is not str:
        raise _wrong(value, "an id in hex")
    try:
        return unhexlify(value)
    except ValueError:  # also for what is not ASCII
        raise _wrong(value, "an id in hex") from None


_URL_SAFE = bytes.maketrans(b"-_", b"+/")


def _base64(value: Json) -> bytes:
    """Both alphabets, with padding or without, as protobuf's JSON allows."""
    if type(value) is not str:
        raise _wrong(value, "bytes in base64")
    try:
        bare = value.encode("ascii").translate(_URL_SAFE).rstrip(b"=")
        return b64decode(bare + b"=" * (-len(bare) % 4), validate=True)
    except (NotBase64, UnicodeEncodeError):
        raise _wrong(value, "bytes in base64") from None


_INT_64, _UINT_64 = (-(2**63), 2**63 - 1), (0, 2**64 - 1)
_SCALARS: Mapping[int, tuple[Encode, int, bytes]] = {
    FieldDescriptor.TYPE_DOUBLE: (_double, 1, bytes(8)),
    FieldDescriptor.TYPE_FIXED64: (_fixed("<Q", *_UINT_64), 1, bytes(8)),
    FieldDescriptor.TYPE_SFIXED64: (_fixed("<q", *_INT_64), 1, bytes(8)),
    FieldDescriptor.TYPE_FIXED32: (_fixed("<I", 0, 2**32 - 1), 5, bytes(4)),
    FieldDescriptor.TYPE_INT64: (_signed_varint(64), 0, b"\x00"),
    FieldDescriptor.TYPE_UINT64: (_unsigned_varint(64), 0, b"\x00"),
    FieldDescriptor.TYPE_INT32: (_signed_varint(32), 0, b"\x00"),
    FieldDescriptor.TYPE_UINT32: (_unsigned_varint(32), 0, b"\x00"),
    FieldDescriptor.TYPE_SINT32: (_zigzag(32), 0, b"\x00"),
    FieldDescriptor.TYPE_ENUM: (_enum, 0, b"\x00"),
    FieldDescriptor.TYPE_BOOL: (_bool, 0, b"\x00"),
    FieldDescriptor.TYPE_STRING: (_text, 2, b""),
    FieldDescriptor.TYPE_BYTES: (_base64, 2, b""),
}
"""By protobuf's type: the encoder, the wire type, and what is not written because it is the default."""
