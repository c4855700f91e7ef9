"""The content of compressed files, with places in what is unpacked.

gzip with any number of members and zstd with any number of frames. A file that breaks off, or is damaged, gives what
could be unpacked of it and is not whole; it may become so.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

_CHUNK = 2**18
_GZIP = 31
"""For zlib: with the header of gzip."""

Unpacking = Callable[[BinaryIO], Iterator[bytes]]


class UnpackError(Exception):
    """The file cannot be unpacked any further; the text says why."""


class PackedContent:
    """Reads forward; going back restarts from the beginning, except for what the last read returned."""

    def __init__(self, path: Path, unpacking: Unpacking) -> None:
        self.broken: str | None = None
        """Why it could not be unpacked to the end, once reading has reached that point."""
        self._path = path
        self._unpacking = unpacking
        self._file = path.open("rb")
        self._restart()

    def stat(self) -> os.stat_result:
        return os.fstat(self._file.fileno())

    def limit(self) -> int | None:
        return None

    def length(self) -> int:
        at = self._start
        while self.read(at, _CHUNK):
            at = self._start + len(self._buffer)
        return at

    def is_complete(self) -> bool:
        return self._ended and self.broken is None

    def read(self, at: int, size: int) -> bytes:
        if at < self._start or (self._ended and self.stat().st_size != self._packed_bytes):
            self._restart()
        while not self._ended and self._start + len(self._buffer) < at + size:
            self._unpack_more()
            passed = min(at - self._start, len(self._buffer))
            if passed > 0:
                del self._buffer[:passed]
                self._start += passed
        first = at - self._start
        return bytes(self._buffer[first : first + size])

    def close(self) -> None:
        self._file.close()

    def _restart(self) -> None:
        self._file.seek(0)
        self._packed_bytes = self.stat().st_size
        self._chunks = self._unpacking(self._file)
        self._buffer = bytearray()
        self._start = 0
        self._ended = False
        self.broken = None

    def _unpack_more(self) -> None:
        try:
            chunk = next(self._chunks, None)
        except UnpackError as error:
            self.broken, chunk = str(error), None
        if chunk is None:
            self._ended = True
        else:
            self._buffer += chunk


def gzip_chunks(file: BinaryIO) -> Iterator[bytes]:
    packed = file.read(_CHUNK)
    while packed:
        member = zlib.decompressobj(_GZIP)
        while not member.eof:
            if not packed:
                raise UnpackError("it breaks off")
            try:
                chunk = member.decompress(packed, _CHUNK)
            except zlib.error as error:
                raise UnpackError(f"it is damaged ({error})") from None
            if chunk:
                yield chunk
            packed = member.unconsumed_tail or (b"" if member.eof else file.read(_CHUNK))
        # Between members, and at the end, there may be zeros.
        packed = member.unused_data.lstrip(b"\0")
        while not packed and (more := file.read(_CHUNK)):
            packed = more.lstrip(b"\0")


def zstd_chunks(file: BinaryIO) -> Iterator[bytes]:
    try:
        # Reads through the open file, which may have lost its name by now.
        with pa.CompressedInputStream(pa.PythonFile(_Borrowed(file), "r"), "zstd") as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise UnpackError(f"it breaks off or is damaged ({error})") from None


class _Borrowed:
    """A file that the stream may read but must not close."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def close(self) -> None:
        self.closed = True
