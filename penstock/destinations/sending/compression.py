"""How the body of a request is packed."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from isal import isal_zlib

from penstock.destinations.sending.sending_options import Packing

_SMALL = 256 << 10
"""Bytes that are put together faster than they are packed piece by piece."""
_GZIP = 31
"""The window of 15 bits, in a gzip frame."""


def compress(pieces: Sequence[bytes | memoryview], by: Packing, level: int) -> bytes:
    """The pieces one behind the other, packed. Other threads run meanwhile."""
    match by:
        case Packing.GZIP:
            if sum(map(len, pieces)) <= _SMALL:
                pieces = [b"".join(pieces)]
            packer = isal_zlib.compressobj(level, isal_zlib.DEFLATED, _GZIP)
            return b"".join([*(packer.compress(piece) for piece in pieces), packer.flush()])
        case Packing.ZSTD:
            packed: bytes = pa.Codec("zstd", level).compress(b"".join(pieces), asbytes=True)
            return packed
        case Packing.NONE:
            return b"".join(pieces)
