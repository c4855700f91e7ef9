"""Values of one column as they are in the documents: the input of every conversion.

Spans leave out the quotes of strings. ``row`` rises strictly: a row has at most one value per column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import compiled
from penstock.json.documents import documents
from penstock.json.leaves import Leaves
from penstock.json.tokens import STRING, Kind

Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Spans:
    """Value ``k`` is ``buffer[start[k]:end[k]]``, of ``kind[k]``, in row ``row[k]``."""

    buffer: npt.NDArray[np.uint8]
    row: Int32s
    kind: Kinds
    start: Int64s
    end: Int64s
    kinds: frozenset[Kind]
    """Which kinds occur."""

    def __len__(self) -> int:
        return len(self.row)

    def where(self, chosen: Bools) -> Spans:
        """Some of the values. ``kinds`` stays: it says what may occur."""
        return Spans(self.buffer, self.row[chosen], self.kind[chosen], self.start[chosen], self.end[chosen], self.kinds)


def by_column(leaves: Leaves, row_of_record: Int32s) -> list[Spans]:
    """The leaves sorted into their columns."""
    columns = len(leaves.paths)
    begins, seen, row, kind, start, end = _sorted(
        leaves.column, leaves.record, leaves.kind, leaves.start, leaves.end, row_of_record, columns
    )
    places: Sequence[int] = begins.tolist()
    return [
        Spans(
            leaves.documents.buffer,
            row[first:last],
            kind[first:last],
            start[first:last],
            end[first:last],
            _kinds(mask),
        )
        for first, last, mask in zip(places[:-1], places[1:], seen.tolist(), strict=True)
    ]


def text_spans(text: pa.Array) -> Spans:
    """Texts as strings to read numbers and times from. They are taken literally, without escapes."""
    docs = documents(text)
    count = len(docs)
    rows = np.arange(count, dtype=np.int32)
    kinds = np.full(count, STRING, np.int8)
    return Spans(docs.buffer, rows, kinds, docs.offsets[:-1], docs.offsets[1:], frozenset((Kind.STRING,)))


def _kinds(mask: int) -> frozenset[Kind]:
    found = _KINDS_OF_MASK.get(mask)
    if found is None:
        found = _KINDS_OF_MASK[mask] = frozenset(kind for kind in Kind if mask >> kind & 1)
    return found


_KINDS_OF_MASK: dict[int, frozenset[Kind]] = {}


@compiled
def _sorted(
    column: Int32s, record: Int32s, kind: Kinds, start: Int64s, end: Int64s, row_of_record: Int32s, columns: int
) -> tuple[Int64s, Int64s, Int32s, Kinds, Int64s, Int64s]:
    """A counting sort by column that keeps the order of rows, with the set of kinds of each column as a bit mask."""
    begins = np.zeros(columns + 1, np.int64)
    seen = np.zeros(columns, np.int64)
    for k in range(len(column)):
        begins[column[k] + 1] += 1
        seen[column[k]] |= 1 << kind[k]
    for c in range(columns):
        begins[c + 1] += begins[c]
    at = begins[:-1].copy()
    sorted_row = np.empty(len(column), np.int32)
    sorted_kind = np.empty(len(column), np.int8)
    sorted_start = np.empty(len(column), np.int64)
    sorted_end = np.empty(len(column), np.int64)
    for k in range(len(column)):
        place = at[column[k]]
        at[column[k]] = place + 1
        sorted_row[place] = row_of_record[record[k]]
        sorted_kind[place] = kind[k]
        quote = 1 if kind[k] == STRING else 0
        sorted_start[place] = start[k] + quote
        sorted_end[place] = end[k] - quote
    return begins, seen, sorted_row, sorted_kind, sorted_start, sorted_end
