"""Decodes Content-Encoding within a limit: refuses early a small body that would unpack into a huge one."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

_PIECE_BYTES = 4096
_CODECS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}


class UnknownEncoding(ValueError):
    """The Content-Encoding is not supported."""


class DamagedBody(ValueError):
    """The body is not what its Content-Encoding says, or its end is missing."""


class TooLarge(ValueError):
    """The body unpacks into more than the limit."""


def unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    """The body without its content encoding; reads at most ``limit`` bytes (and one) of it."""
    codec = _codec(encoding)
    if codec is None:
        return body
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            unpacked_body: bytes = stream.read(limit + 1)
    except (OSError, pa.ArrowInvalid) as error:
        raise DamagedBody(f"the body is not valid {codec}: {error}") from error
    if len(unpacked_body) > limit:
        raise TooLarge
    return unpacked_body


def quickly_unpacked(body: bytes, encoding: str, limit: int) -> bytes | None:
    """The same for a small body; None if it is larger than ``limit``, packed or not, and needs a lane."""
    try:
        return unpacked(body, encoding, limit) if len(body) <= limit else None
    except TooLarge:
        return None


def unpacked_start(start: bytes, encoding: str, limit: int) -> bytes:
    """What the first bytes of a body unpack into, up to ``limit``; as much as possible if they are damaged or cut."""
    codec = _codec(encoding)
    if codec is None:
        return start[:limit]
    found = b""
    with suppress(OSError, pa.ArrowInvalid), pa.CompressedInputStream(pa.BufferReader(start), codec) as stream:
        while len(found) < limit and (piece := stream.read(_PIECE_BYTES)):
            found += piece
    return found[:limit]


def _codec(encoding: str) -> str | None:
    """The name that Arrow has for it; None for no encoding."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    codec = _CODECS.get(name)
    if codec is None:
        raise UnknownEncoding(f"Content-Encoding '{name[:40]}' is not known here; send gzip, zstd or none")
    return codec
