"""How the body of a request is packed."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import pyarrow as pa
from isal import isal_zlib

_GZIP = 31
"""The window of 15 bits, in a gzip frame."""
GZIP_LEVELS = range(4)
ZSTD_LEVELS = range(1, 20)


class Compression(StrEnum):
    GZIP = "gzip"
    ZSTD = "zstd"
    NONE = "none"


def compress(pieces: Iterable[bytes | memoryview], by: Compression, level: int) -> bytes:
    """The pieces one behind the other, packed. Other threads run meanwhile."""
    match by:
        case Compression.GZIP:
            packer = isal_zlib.compressobj(level, isal_zlib.DEFLATED, _GZIP)
            return b"".join([*(packer.compress(piece) for piece in pieces), packer.flush()])
        case Compression.ZSTD:
            packed: bytes = pa.Codec("zstd", level).compress(b"".join(pieces), asbytes=True)
            return packed
        case Compression.NONE:
            return b"".join(pieces)
