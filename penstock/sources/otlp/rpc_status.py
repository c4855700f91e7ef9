"""``google.rpc.Status``, in which OTLP says what went wrong, over HTTP and over gRPC.

Its message classes are in a package that we do not otherwise need; the three fields are written here.
"""

from __future__ import annotations

from enum import IntEnum

import orjson
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration

RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


class RpcCode(IntEnum):
    """The codes of gRPC that we use."""

    INVALID_ARGUMENT = 3
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


_BY_HTTP_STATUS = {
    400: RpcCode.INVALID_ARGUMENT,
    401: RpcCode.UNAUTHENTICATED,
    403: RpcCode.PERMISSION_DENIED,
    404: RpcCode.UNIMPLEMENTED,
    405: RpcCode.UNIMPLEMENTED,
    408: RpcCode.UNAVAILABLE,
    413: RpcCode.RESOURCE_EXHAUSTED,
    415: RpcCode.UNIMPLEMENTED,
    429: RpcCode.UNAVAILABLE,
    500: RpcCode.INTERNAL,
    503: RpcCode.UNAVAILABLE,
}


def code_of(http_status: int) -> RpcCode:
    """The code that says the same as a status of HTTP."""
    return _BY_HTTP_STATUS.get(http_status, RpcCode.INTERNAL)


def status_json(code: RpcCode, message: str) -> bytes:
    return orjson.dumps({"code": int(code), "message": message})


def status_protobuf(code: RpcCode, message: str, retry_seconds: int | None = None) -> bytes:
    """With ``retry_seconds``, clients are told that and when the same request may work."""
    status = b"\x08" + bytes([code]) + _delimited(2, message.encode())
    if retry_seconds is None:
        return status
    delay = _delimited(1, Duration(seconds=retry_seconds).SerializeToString())
    return status + _delimited(3, Any(type_url=RETRY_INFO, value=delay).SerializeToString())


def _delimited(field: int, content: bytes) -> bytes:
    length, encoded = len(content), bytearray()
    while length > 127:
        encoded.append(length & 127 | 128)
        length >>= 7
    return bytes([field << 3 | 2, *encoded, length]) + content
