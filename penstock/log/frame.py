"""The unit on disk: one group of records, appended together, whole or not at all.

A frame is a header of 64 bytes and an Arrow IPC record batch (its schema is known, so it is not repeated). The header
carries what a reader needs to pass over the frame without opening it, a checksum of the payload, and a checksum of
itself: walking from header to header is safe without touching payloads, and no damaged byte is ever read as data.
Frames are a multiple of 8 bytes long, so that an uncompressed batch can be used where it lies in a mapped file.

No I/O happens here.
"""

from __future__ import annotations

import struct
from enum import IntFlag
from functools import cache
from typing import NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa

from penstock.errors import LogError
from penstock.record import ENTRY_SCHEMA

MAGIC = b"PNSF"
VERSION = 1
HEADER_BYTES = 64
MAX_FRAME_BYTES = 64 * 2**20
_WORTH_COMPRESSING = 8 * 2**10

_LAYOUT = struct.Struct("<4sBBHIIqqIIqqI")
_CHECKSUM = struct.Struct("<I")
_CHECKED_BYTES = _LAYOUT.size
assert _CHECKED_BYTES + _CHECKSUM.size == HEADER_BYTES


class FrameFlag(IntFlag):
    SCATTERED = 1
    """Offsets are not consecutive: the batch has a first column ``offset``. Compaction leaves such frames."""


SCATTERED_SCHEMA: pa.Schema = pa.schema([pa.field("offset", pa.int64(), nullable=False), *ENTRY_SCHEMA])


class FrameHeader(NamedTuple):
    flags: int
    payload_bytes: int
    raw_bytes: int
    """Size of the records in memory, before compression."""
    base_offset: int
    last_offset: int
    records: int
    payload_checksum: int
    min_timestamp: int
    max_timestamp: int

    @property
    def frame_bytes(self) -> int:
        return HEADER_BYTES + self.payload_bytes


class BadFrame(Exception):
    """The bytes at a place are not a whole frame; the text says why. Callers know which file and where."""


def write_options(compression: str) -> pa.ipc.IpcWriteOptions:
    return pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression, use_threads=False)


class Body(NamedTuple):
    """A batch ready to be written, before it is known where: the costly part of a frame."""

    flags: int
    payload: pa.Buffer
    raw_bytes: int
    records: int
    checksum: int
    min_timestamp: int
    max_timestamp: int


def encode(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> Body:
    """Entries (``ENTRY_SCHEMA``), or entries with offsets of their own (``SCATTERED_SCHEMA``), at least one.

    Raises ``LogError`` if they are more than one frame may hold.
    """
    raw_bytes = batch.nbytes
    if raw_bytes > MAX_FRAME_BYTES:
        raise LogError(
            "PEN-LOG-002",
            f"an append of {raw_bytes} bytes is larger than {MAX_FRAME_BYTES}, the most that is taken at once.",
            "Send it in smaller pieces.",
        )
    flags = FrameFlag.SCATTERED if batch.num_columns == len(SCATTERED_SCHEMA) else 0
    times = batch.column("timestamp").to_numpy(zero_copy_only=True).view(np.int64)
    payload = _message(batch, raw_bytes, options)
    checksum = google_crc32c.value(np.frombuffer(payload, np.uint8))
    return Body(flags, payload, raw_bytes, batch.num_rows, checksum, int(times.min()), int(times.max()))


def place(body: Body, base_offset: int, last_offset: int) -> tuple[FrameHeader, bytes]:
    """The header of a frame with this body at these offsets, and its bytes. The payload is written behind it."""
    header = FrameHeader(
        body.flags, body.payload.size, body.raw_bytes, base_offset, last_offset, body.records, body.checksum,
        body.min_timestamp, body.max_timestamp,
    )  # fmt: skip
    return header, _pack(header)


def decode_header(data: bytes) -> FrameHeader:
    """The header in the first 64 of ``data``. Raises ``BadFrame`` unless every bit of it is as it was written."""
    if len(data) < HEADER_BYTES:
        raise BadFrame("the header is cut short")
    (found,) = _CHECKSUM.unpack_from(data, _CHECKED_BYTES)
    magic, version, flags, _, payload, raw, base, last, count, checksum, oldest, newest, _ = _LAYOUT.unpack_from(data)
    if magic != MAGIC:
        raise BadFrame("no frame starts here")
    if google_crc32c.value(data[:_CHECKED_BYTES]) != found:
        raise BadFrame("the header's checksum is wrong")
    if version != VERSION:
        raise LogError(
            "PEN-LOG-008",
            f"the log was written in format {version}; this version reads {VERSION}.",
            "Upgrade Penstock.",
        )
    return FrameHeader(flags, payload, raw, base, last, count, checksum, oldest, newest)


def payload_is_whole(header: FrameHeader, payload: np.ndarray) -> bool:
    return len(payload) == header.payload_bytes and google_crc32c.value(payload) == header.payload_checksum


def decode(header: FrameHeader, payload: pa.Buffer) -> tuple[pa.RecordBatch, np.ndarray]:
    """The entries of a frame whose checksum was found right, and their offsets."""
    if header.flags & FrameFlag.SCATTERED:
        batch = pa.ipc.read_record_batch(payload, SCATTERED_SCHEMA)
        entries = pa.RecordBatch.from_arrays(batch.columns[1:], schema=ENTRY_SCHEMA)
        return entries, batch.column(0).to_numpy()
    batch = pa.ipc.read_record_batch(payload, ENTRY_SCHEMA)
    return batch, np.arange(header.base_offset, header.last_offset + 1, dtype=np.int64)


def _message(batch: pa.RecordBatch, raw_bytes: int, options: pa.ipc.IpcWriteOptions) -> pa.Buffer:
    """The batch as one IPC message. Only a stream writer compresses, so the schema that it writes first is cut off."""
    if options.compression is None or raw_bytes < _WORTH_COMPRESSING:
        return batch.serialize()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch)
        end = sink.tell()
    schema_bytes = _schema_bytes(batch.num_columns)
    return sink.getvalue().slice(schema_bytes, end - schema_bytes)


@cache
def _schema_bytes(columns: int) -> int:
    schema = SCATTERED_SCHEMA if columns == len(SCATTERED_SCHEMA) else ENTRY_SCHEMA
    return int(schema.serialize().size)


def _pack(h: FrameHeader) -> bytes:
    fields = _LAYOUT.pack(
        MAGIC, VERSION, h.flags, 0, h.payload_bytes, h.raw_bytes, h.base_offset, h.last_offset,
        h.records, h.payload_checksum, h.min_timestamp, h.max_timestamp, 0,
    )  # fmt: skip
    return fields + _CHECKSUM.pack(google_crc32c.value(fields))
