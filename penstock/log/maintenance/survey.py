"""Accounts for every byte of a segment: whole frames, and the bytes between them that are no frames.

After a damaged frame, the next whole one is searched for. A record may hold bytes that look like a frame, even the
whole segment of another log. So a frame is trusted if frames follow each other from it up to the end of the segment;
and a frame before that one, if its records have exactly the offsets that are missing there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.log.format.frame import (
    HEADER_BYTES,
    MAGIC,
    BadFrame,
    FrameHeader,
    decode,
    decode_header,
    payload_is_whole,
)
from penstock.log.format.index import Place, first_place
from penstock.log.format.segment import Segment, after

NO_LIMIT = 2**63


class Whole(NamedTuple):
    place: Place
    header: FrameHeader


class Broken(NamedTuple):
    """Bytes that are no frame. Of the records that were there only the offsets are known: ``first`` up to ``end``."""

    position: int
    bytes: int
    first: int
    end: int | None
    """None: no whole frame follows in this segment."""
    why: str


def survey(segment: Segment, limit: int = NO_LIMIT) -> Iterator[Whole | Broken]:
    """What the segment consists of, in order and without a gap. Offsets from ``limit`` on belong to a later segment."""
    place = first_place(segment.base)
    certain: Whole | None = None
    while place.position < segment.size:
        try:
            header = _check_frame_below(segment, place, limit)
        except BadFrame as bad:
            if certain is None or certain.place.position <= place.position:
                certain = _next_certain(segment, place, limit)
            found = _next_possible(segment, place, limit, certain) or certain
            stop = segment.size if found is None else found.place.position
            first, end = _lost(segment, place, found)
            yield Broken(place.position, stop - place.position, first, end, str(bad))
            if found is None:
                return
            place = found.place
        else:
            yield Whole(place, header)
            place = after(place, header)


def _check_frame_below(segment: Segment, place: Place, limit: int) -> FrameHeader:
    """Check a frame that must end before ``limit``: one that does not is in the wrong segment."""
    header = check_frame(segment, place)
    if header.last_offset >= limit:
        raise BadFrame(f"offset {header.last_offset} belongs to a later segment, from {limit} on")
    return header


def check_frame(segment: Segment, place: Place) -> FrameHeader:
    """Check the frame at a place; returns its header. Raises ``BadFrame`` unless all of it is right and readable."""
    position = place.position
    header = decode_header(segment.content[position : position + HEADER_BYTES])
    if position + header.frame_bytes > segment.size:
        raise BadFrame("the frame is cut short")
    if header.base_offset < place.offset:
        raise BadFrame(f"offset {header.base_offset} comes after {place.offset - 1}")
    payload = segment.bytes(position + HEADER_BYTES, header.payload_bytes)
    if not payload_is_whole(header, np.frombuffer(payload, np.uint8)):
        raise BadFrame("the frame's checksum is wrong")
    try:
        entries, offsets = decode(header, payload)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadFrame(f"its records cannot be read: {error}") from None
    if header.records and not _fits(header, entries.num_rows, offsets):
        raise BadFrame("its records are not those that its header names")
    return header


def _fits(header: FrameHeader, count: int, offsets: np.ndarray) -> bool:
    ascending = bool(np.all(offsets[1:] > offsets[:-1]))
    named = (header.records, header.base_offset, header.last_offset)
    return ascending and len(offsets) == count and named == (count, int(offsets[0]), int(offsets[-1]))


def _next_certain(segment: Segment, bad: Place, limit: int) -> Whole | None:
    """The first whole frame after a bad one from which frames follow each other up to the end of the segment."""
    for found in _whole_frames(segment, bad, segment.size):
        if found.header.last_offset < limit and _leads_to_the_end(segment, found):
            return found
    return None


def _next_possible(segment: Segment, bad: Place, limit: int, certain: Whole | None) -> Whole | None:
    """A whole frame before that, whose records come between: there is more damage after it."""
    stop = segment.size if certain is None else certain.place.position
    for found in _whole_frames(segment, bad, stop):
        if found.header.last_offset < (limit if certain is None else certain.header.base_offset):
            return found
    return None


def _whole_frames(segment: Segment, bad: Place, stop: int) -> Iterator[Whole]:
    """Everything from a bad frame up to ``stop`` that looks like a whole one with later records."""
    header = _readable_header(segment, bad)
    position = bad.position + (8 if header is None else header.frame_bytes)
    while (position := segment.content.find(MAGIC, position, stop)) >= 0:
        # Frames start at multiples of 8.
        if position % 8 == 0:
            place = bad._replace(position=position)
            with suppress(BadFrame):
                header = check_frame(segment, place)
                yield Whole(place._replace(offset=header.base_offset), header)
        position += 1


def _leads_to_the_end(segment: Segment, found: Whole) -> bool:
    place, header = found
    while (place := after(place, header)).position < segment.size:
        try:
            header = decode_header(segment.content[place.position : place.position + HEADER_BYTES])
        except BadFrame:
            return False
        if header.base_offset < place.offset:
            return False
    return place.position == segment.size


def _lost(segment: Segment, bad: Place, found: Whole | None) -> tuple[int, int | None]:
    """The offsets that are lost: those that the bad frame's header names, if it can be read and nothing else is bad."""
    header = _readable_header(segment, bad)
    if header is not None and found is not None and found.place.position == bad.position + header.frame_bytes:
        return header.base_offset, header.last_offset + 1
    return bad.offset, None if found is None else found.header.base_offset


def _readable_header(segment: Segment, bad: Place) -> FrameHeader | None:
    try:
        header = decode_header(segment.content[bad.position : bad.position + HEADER_BYTES])
    except BadFrame:
        return None
    return header if header.base_offset >= bad.offset else None
