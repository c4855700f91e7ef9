"""The column ``_unmapped``: everything of a row that fits no column, as one JSON object.

A value that its column's cast could not convert is under the column's name; a value whose path lost its name to another
path is under that path (it begins with a slash, so the two never collide). Values are the original JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.flatten.values.text_values import validity_bitmap, write_compact
from penstock.flatten.values.value_spans import Int32s, Int64s, Spans
from penstock.json.tokens import STRING

UNMAPPED = "_unmapped"


@dataclass(frozen=True)
class Leftover:
    """Values of one column that go to ``_unmapped`` under ``key``."""

    key: str
    spans: Spans


def unmapped_array(leftovers: list[Leftover], rows: int) -> pa.Array:
    """The text of every row that has leftovers, null for the others. All leftovers are in the same buffer."""
    labels = [(json.dumps(leftover.key, ensure_ascii=False) + ":").encode() for leftover in leftovers]
    label_starts = np.cumsum([0, *map(len, labels)], dtype=np.int64)
    label = np.concatenate([np.full(len(x.spans), k, np.int64) for k, x in enumerate(leftovers)])
    row = np.concatenate([x.spans.row for x in leftovers])
    # Strings get back the quotes that spans leave out.
    quote = np.concatenate([x.spans.kind == STRING for x in leftovers]).astype(np.int64)
    start = np.concatenate([x.spans.start for x in leftovers]) - quote
    end = np.concatenate([x.spans.end for x in leftovers]) + quote
    order = np.lexsort((start, row))
    row, label, start, end = row[order], label[order], start[order], end[order]
    room = int((end - start).sum() + np.diff(label_starts)[label].sum() + 2 * len(row))
    out = np.empty(room, np.uint8)
    offsets = np.empty(rows + 1, np.int64)
    used = _write_objects(
        leftovers[0].spans.buffer,
        row,
        label,
        start,
        end,
        np.frombuffer(b"".join(labels), np.uint8),
        label_starts,
        offsets,
        out,
    )
    buffers = [validity_bitmap(row, rows), pa.py_buffer(offsets), pa.py_buffer(out[:used])]
    text = pa.Array.from_buffers(pa.large_string(), rows, buffers)
    return text if used >= 2**31 else text.cast(pa.string())


@compiled
def _write_objects(
    buf: Bytes,
    row: Int32s,
    label: Int64s,
    start: Int64s,
    end: Int64s,
    labels: Bytes,
    label_starts: Int64s,
    offsets: Int64s,
    out: npt.NDArray[np.uint8],
) -> int:
    at = 0
    next_row = 0
    for k in range(len(row)):
        if k == 0 or row[k] != row[k - 1]:
            while next_row <= row[k]:
                offsets[next_row] = at
                next_row += 1
            out[at] = 0x7B
        else:
            # The object of this row goes on: its closing brace becomes a comma.
            at -= 1
            out[at] = 0x2C
        at += 1
        for i in range(label_starts[label[k]], label_starts[label[k] + 1]):
            out[at] = labels[i]
            at += 1
        at = write_compact(buf, start[k], end[k], out, at)
        out[at] = 0x7D
        at += 1
    while next_row < len(offsets):
        offsets[next_row] = at
        next_row += 1
    return at
