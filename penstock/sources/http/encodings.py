"""Content-Encoding undone, with an end to it: a small body that would unpack into a huge one is refused early."""

from __future__ import annotations

import pyarrow as pa

_CODECS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}


class UnknownEncoding(ValueError):
    """The Content-Encoding is none that we read."""


class DamagedBody(ValueError):
    """The body is not what its Content-Encoding says, or its end is missing."""


class TooLarge(ValueError):
    """The body unpacks into more than the limit."""


def unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    """The body without its content encoding; reads at most ``limit`` bytes (and one) of it."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    codec = _CODECS.get(name)
    if codec is None:
        raise UnknownEncoding(f"Content-Encoding '{name[:40]}' is not known here; send gzip, zstd or none")
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            unpacked_body: bytes = stream.read(limit + 1)
    except (OSError, pa.ArrowInvalid) as error:
        raise DamagedBody(f"the body is not valid {codec}: {error}") from error
    if len(unpacked_body) > limit:
        raise TooLarge
    return unpacked_body
