"""The unit on disk: one group of records, appended together, completely or not at all.

A frame is a header of 64 bytes and an Arrow IPC record batch (its schema is known, so it is not repeated), compressed
as one block unless told otherwise: Arrow's own compression, buffer by buffer, takes seven times as long to read. The
header carries what a reader needs to skip the frame without opening it, a checksum of the payload, and a checksum of
itself: walking from header to header is safe without touching payloads, and no damaged byte is ever read as data.
Frames are a multiple of 8 bytes long, so that an uncompressed batch can be used where it lies in a mapped file.

The header also has the *stamp* of the append (see ``logical_clock``): it orders frames over all partitions, and never
decreases within one. Compaction puts records of several appends into one frame; then each has its own stamp.

A frame without records is a header alone. It says that the offsets up to its last one are gone on purpose: so a segment
that was compacted or repaired still reaches the first offset of the next one, and a file that was merely cut short
never looks like it.

Frames of format 1 have their lowest timestamp, which is not used, in place of a stamp. Their records count as older
than all records with a stamp.

No I/O happens here.
"""

from __future__ import annotations

import struct
from enum import IntFlag
from typing import NamedTuple

import google_crc32c
import lz4.block
import numpy as np
import pyarrow as pa

from penstock.errors import AppendTooLarge, LogError
from penstock.record import ENTRY_SCHEMA, int64_values

MAGIC = b"PNSF"
VERSION = 2
_UNSTAMPED_VERSION = 1
HEADER_BYTES = 64
MAX_FRAME_BYTES = 64 * 2**20
NO_TIMESTAMP = -(2**63)
LAST_OFFSET = 2**63 - 2
"""The highest possible offset: the next one must be a number too."""
_WORTH_COMPRESSING = 8 * 2**10
READ_POOL = pa.system_memory_pool()
"""Memory for what is read. Arrow's own gives large pieces back to the system at once: to be given them again, for every
frame, takes as long as to unpack it."""

_LAYOUT = struct.Struct("<4sBBHIIqqIIqqI")
_CHECKSUM = struct.Struct("<I")
_SIZES = struct.Struct("<II")
_CHECKED_BYTES = _LAYOUT.size
assert _CHECKED_BYTES + _CHECKSUM.size == HEADER_BYTES


class FrameFlag(IntFlag):
    SCATTERED = 1
    """Offsets are not consecutive: the batch has a first column ``offset``. Compaction leaves such frames."""
    LZ4 = 2
    ZSTD = 4
    """How the batch is compressed; neither flag: not at all."""
    STAMPED = 8
    """Each record has its own stamp: the batch has a second column ``stamp``. Only in scattered frames; the header's
    stamp is that of the last record."""


_NO_ENTRIES = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in ENTRY_SCHEMA], schema=ENTRY_SCHEMA)
SCATTERED_SCHEMA: pa.Schema = pa.schema([pa.field("offset", pa.int64(), nullable=False), *ENTRY_SCHEMA])
STAMPED_SCHEMA: pa.Schema = pa.schema(
    [SCATTERED_SCHEMA.field(0), pa.field("stamp", pa.int64(), nullable=False), *ENTRY_SCHEMA]
)


_FLAGS = {
    len(ENTRY_SCHEMA): 0,
    len(SCATTERED_SCHEMA): int(FrameFlag.SCATTERED),
    len(STAMPED_SCHEMA): int(FrameFlag.SCATTERED | FrameFlag.STAMPED),
}


class FrameHeader(NamedTuple):
    flags: int
    payload_bytes: int
    raw_bytes: int
    """Size of the records in memory."""
    base_offset: int
    last_offset: int
    records: int
    payload_checksum: int
    stamp: int
    """The position of the append in the order over all partitions; 0 if it predates stamps."""
    max_timestamp: int
    generation: int = 0
    """How often the segment was rewritten: an index belongs to it only if it has the same generation."""

    @property
    def frame_bytes(self) -> int:
        return HEADER_BYTES + self.payload_bytes


class BadFrame(Exception):
    """The bytes at a place are not a whole frame; the text says why. Callers know which file and where."""


class Body(NamedTuple):
    """A batch ready to be written, at any offset: the expensive part of a frame."""

    flags: int
    pieces: tuple[pa.Buffer, ...]
    """The payload, in parts that are written one after the other."""
    raw_bytes: int
    records: int
    checksum: int
    max_timestamp: int


def encode(batch: pa.RecordBatch, compression: str) -> Body:
    """Entries (``ENTRY_SCHEMA``), or entries with offsets of their own (``SCATTERED_SCHEMA``), and stamps too
    (``STAMPED_SCHEMA``), at least one.

    Raises ``AppendTooLarge`` if they are more than one frame may hold.
    """
    raw_bytes = batch.nbytes
    if raw_bytes > MAX_FRAME_BYTES:
        raise AppendTooLarge(
            "PEN-LOG-002",
            f"an append of {raw_bytes} bytes is larger than {MAX_FRAME_BYTES}, the most that is taken at once.",
            "Send it in smaller pieces.",
        )
    flags = _FLAGS[batch.num_columns]
    times = batch.column("timestamp").to_numpy(zero_copy_only=True).view(np.int64)
    how, pieces = _packed(batch.serialize(), compression)
    padding = -sum(piece.size for piece in pieces) % 8
    if padding:
        pieces.append(pa.py_buffer(bytes(padding)))
    checksum = 0
    for piece in pieces:
        checksum = google_crc32c.extend(checksum, np.frombuffer(piece, np.uint8))
    return Body(flags | how, tuple(pieces), raw_bytes, batch.num_rows, checksum, int(times.max()))


def place(body: Body, base_offset: int, last_offset: int, stamp: int, generation: int = 0) -> tuple[FrameHeader, bytes]:
    """The header of a frame with this body at these offsets, and its bytes. The payload is written after it."""
    payload_bytes = sum(piece.size for piece in body.pieces)
    header = FrameHeader(
        body.flags, payload_bytes, body.raw_bytes, base_offset, last_offset, body.records, body.checksum,
        stamp, body.max_timestamp, generation,
    )  # fmt: skip
    return header, pack_header(header)


def gone_header(base_offset: int, last_offset: int, generation: int, stamp: int = 0) -> FrameHeader:
    """A frame without records: these offsets are gone. ``stamp`` is the previous frame's: stamps never decrease."""
    return FrameHeader(0, 0, 0, base_offset, last_offset, 0, 0, stamp, NO_TIMESTAMP, generation)


def decode_header(data: bytes) -> FrameHeader:
    """The header in the first 64 of ``data``. Raises ``BadFrame`` unless every bit of it is as it was written."""
    if len(data) < HEADER_BYTES:
        raise BadFrame("the header is cut short")
    (found,) = _CHECKSUM.unpack_from(data, _CHECKED_BYTES)
    magic, version, flags, _, payload, raw, base, last, count, checksum, stamp, newest, generation = (
        _LAYOUT.unpack_from(data)
    )
    if magic != MAGIC:
        raise BadFrame("no frame starts here")
    if google_crc32c.value(data[:_CHECKED_BYTES]) != found:
        raise BadFrame("the header's checksum is wrong")
    if version == _UNSTAMPED_VERSION:
        stamp = 0
    elif version != VERSION:
        raise LogError(
            "PEN-LOG-008",
            f"the log was written in format {version}; this version reads {VERSION}.",
            "Upgrade Penstock.",
        )
    return FrameHeader(flags, payload, raw, base, last, count, checksum, stamp, newest, generation)


def payload_is_whole(header: FrameHeader, payload: np.ndarray) -> bool:
    return len(payload) == header.payload_bytes and google_crc32c.value(payload) == header.payload_checksum


def decode(header: FrameHeader, payload: pa.Buffer) -> tuple[pa.RecordBatch, np.ndarray]:
    """The entries of a frame and their offsets. The caller has verified its checksum."""
    if header.records == 0:
        return _NO_ENTRIES, np.empty(0, np.int64)
    message = _message(header, payload)
    if header.flags & FrameFlag.SCATTERED:
        schema = STAMPED_SCHEMA if header.flags & FrameFlag.STAMPED else SCATTERED_SCHEMA
        batch = pa.ipc.read_record_batch(message, schema)
        entries = pa.RecordBatch.from_arrays(batch.columns[-len(ENTRY_SCHEMA) :], schema=ENTRY_SCHEMA)
        return entries, int64_values(batch.column(0))
    batch = pa.ipc.read_record_batch(message, ENTRY_SCHEMA)
    return batch, np.arange(header.base_offset, header.last_offset + 1, dtype=np.int64)


def decode_stamps(header: FrameHeader, payload: pa.Buffer) -> np.ndarray:
    """The stamps of a frame in which each record has its own. The caller has verified its checksum."""
    return int64_values(pa.ipc.read_record_batch(_message(header, payload), STAMPED_SCHEMA).column(1))


def _packed(message: pa.Buffer, compression: str) -> tuple[int, list[pa.Buffer]]:
    """The message as written to disk, and the flag of its compression. A compressed one is its sizes, packed and raw,
    then one block."""
    if compression == "none" or message.size < _WORTH_COMPRESSING:
        return 0, [message]
    if compression == "zstd":
        # As bytes: the memoryview of a buffer that Arrow has shrunk still reports its former length.
        flag, block = FrameFlag.ZSTD, pa.Codec("zstd").compress(message, asbytes=True)
    else:
        # Its fast mode takes two thirds of the time for a fifth more bytes: a collector has more disk than time.
        fast = lz4.block.compress(memoryview(message), mode="fast", acceleration=12, store_size=False)
        flag, block = FrameFlag.LZ4, fast
    return flag, [pa.py_buffer(_SIZES.pack(len(block), message.size)), pa.py_buffer(block)]


def _message(header: FrameHeader, payload: pa.Buffer) -> pa.Buffer:
    """The message as it was before it was compressed. The payload may be longer than the block."""
    if not header.flags & (FrameFlag.ZSTD | FrameFlag.LZ4):
        return payload
    codec = pa.Codec("zstd" if header.flags & FrameFlag.ZSTD else "lz4_raw")
    packed, raw = _SIZES.unpack_from(payload)
    return codec.decompress(payload.slice(_SIZES.size, packed), raw, memory_pool=READ_POOL)


def pack_header(h: FrameHeader) -> bytes:
    fields = _LAYOUT.pack(
        MAGIC, VERSION, h.flags, 0, h.payload_bytes, h.raw_bytes, h.base_offset, h.last_offset,
        h.records, h.payload_checksum, h.stamp, h.max_timestamp, h.generation,
    )  # fmt: skip
    return fields + _CHECKSUM.pack(google_crc32c.value(fields))
