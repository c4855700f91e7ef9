"""Values from ``_unmapped``: what a table's rows keep there, by key, and the same values converted for a column.

Nothing here depends on an engine: Arrow in, Arrow out. A value goes into a column by the rules of loading
(``flatten.fit_column``): if any of it would be lost, it stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.flatten.casts import Cast
from penstock.flatten.fit_column import fit_json
from penstock.flatten.inner_types import InnerType
from penstock.flatten.values.text_values import json_array
from penstock.flatten.values.to_arrow import infer_column
from penstock.flatten.values.value_spans import Bools, Spans, by_column
from penstock.json.leaves import leaves
from penstock.json.members import drop_members
from penstock.json.tokens import Kind


@dataclass(frozen=True)
class Member:
    """The values that some rows keep under one key."""

    spans: Spans
    rows: int
    """How many rows there are, with and without the key."""

    def __len__(self) -> int:
        return len(self.spans)

    def where(self, chosen: Bools) -> Member:
        """Only the values of the chosen rows."""
        return replace(self, spans=self.spans.where(chosen[self.spans.row]))

    @property
    def present(self) -> Bools:
        """Which rows have a value."""
        found = np.zeros(self.rows, np.bool_)
        found[self.spans.row] = True
        return found

    def type(self, infer_timestamps: bool) -> InnerType:
        """The lowest type that keeps every value whole; there must be at least one value."""
        kinds = frozenset(Kind(kind) for kind in np.unique(self.spans.kind).tolist())
        return infer_column(replace(self.spans, kinds=kinds), self.rows, infer_timestamps).type

    def as_column(self, target: Cast) -> pa.Array:
        """Each row's value converted for the column; null where there is none, or it would lose something.

        The target's type must be known (``target.type``).
        """
        return fit_json(json_array(self.spans, self.rows), target).array


@dataclass(frozen=True)
class Members:
    """What an array of ``_unmapped`` holds."""

    by_key: Mapping[str, Member]
    objects: frozenset[str]
    """Keys that hold an object. No column has such values, so these are not ours."""


def parse_unmapped(unmapped: pa.Array) -> Members:
    """Parse JSON texts and nulls. A text that is not a JSON object holds nothing."""
    found = leaves(unmapped)
    every = by_column(found, np.arange(len(unmapped), dtype=np.int32))
    return Members(
        {path[0]: Member(spans, len(unmapped)) for path, spans in zip(found.paths, every, strict=True) if not path[1:]},
        frozenset(path[0] for path in found.paths if path[1:]),
    )


def without_members(unmapped: pa.Array, taken: Mapping[str, Bools]) -> pa.Array:
    """The texts without the ``taken`` members: per key, the rows to remove it from. An empty object becomes null.

    Every other byte stays as it was.
    """
    texts = unmapped.cast(pa.binary())
    for keys, rows in _removals(taken):
        shorter = drop_members(texts, [(key,) for key in keys]).data
        texts = shorter if rows.all() else pc.if_else(pa.array(rows), shorter, texts)
    texts = texts.cast(pa.string())
    return pc.if_else(pc.match_substring_regex(texts, r"^\s*\{\s*\}\s*$"), pa.scalar(None, pa.string()), texts)


def _removals(taken: Mapping[str, Bools]) -> Iterator[tuple[list[str], Bools]]:
    """Keys to remove together, and the rows to do it in. Keys of the same rows are removed in one pass."""
    together: dict[bytes, list[str]] = {}
    for key, rows in taken.items():
        if rows.any():
            together.setdefault(rows.tobytes(), []).append(key)
    for rows_of, keys in together.items():
        yield keys, np.frombuffer(rows_of, np.bool_)
