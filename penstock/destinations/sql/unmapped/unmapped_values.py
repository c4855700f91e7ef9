"""Values out of ``_unmapped``: what a table's rows keep there, by key, and the same values as a column could take them.

Nothing here knows an engine: it is Arrow in, Arrow out. A value goes into a column under the rules by which it would be
loaded (``flatten.fitting``): nothing of it may be lost, or it stays where it is.
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
from penstock.flatten.values.to_arrow import inferred
from penstock.flatten.values.value_spans import Bools, Spans, by_column
from penstock.json.leaves import leaves
from penstock.json.members import without
from penstock.json.tokens import Kind


@dataclass(frozen=True)
class Member:
    """The values that some rows keep under one key."""

    spans: Spans
    rows: int
    """How many rows there are, with and without it."""

    def __len__(self) -> int:
        return len(self.spans)

    def where(self, chosen: Bools) -> Member:
        """Only the values of the chosen rows."""
        return replace(self, spans=self.spans.where(chosen[self.spans.row]))

    @property
    def present(self) -> Bools:
        """Which rows have one."""
        found = np.zeros(self.rows, np.bool_)
        found[self.spans.row] = True
        return found

    def type(self, infer_timestamps: bool) -> InnerType:
        """The lowest type that keeps every value whole; there must be one."""
        kinds = frozenset(Kind(kind) for kind in np.unique(self.spans.kind).tolist())
        return inferred(replace(self.spans, kinds=kinds), self.rows, infer_timestamps).type

    def as_column(self, target: Cast) -> pa.Array:
        """Per row the value as the column has it; null where there is none, or it cannot be had without loss.

        The target's type must be known (``target.type``).
        """
        return fit_json(json_array(self.spans, self.rows), target).array


@dataclass(frozen=True)
class Members:
    """What an array of ``_unmapped`` holds."""

    by_key: Mapping[str, Member]
    objects: frozenset[str]
    """Keys with an object behind them. No value of a column is one, so these are not ours."""


def members(unmapped: pa.Array) -> Members:
    """Look into JSON texts, nulls among them. What is no JSON object holds nothing."""
    found = leaves(unmapped)
    every = by_column(found, np.arange(len(unmapped), dtype=np.int32))
    return Members(
        {path[0]: Member(spans, len(unmapped)) for path, spans in zip(found.paths, every, strict=True) if not path[1:]},
        frozenset(path[0] for path in found.paths if path[1:]),
    )


def emptied(unmapped: pa.Array, taken: Mapping[str, Bools]) -> pa.Array:
    """The texts without the members that were taken, each by key from its rows; an object without members is null.

    Every other byte stays as it was.
    """
    texts = unmapped.cast(pa.binary())
    for keys, rows in _removals(taken):
        shorter = without(texts, [(key,) for key in keys]).data
        texts = shorter if rows.all() else pc.if_else(pa.array(rows), shorter, texts)
    texts = texts.cast(pa.string())
    return pc.if_else(pc.match_substring_regex(texts, r"^\s*\{\s*\}\s*$"), pa.scalar(None, pa.string()), texts)


def _removals(taken: Mapping[str, Bools]) -> Iterator[tuple[list[str], Bools]]:
    """Keys to take out together, and the rows to do it in. Keys that go from the same rows go in one pass."""
    together: dict[bytes, list[str]] = {}
    for key, rows in taken.items():
        if rows.any():
            together.setdefault(rows.tobytes(), []).append(key)
    for rows_of, keys in together.items():
        yield keys, np.frombuffer(rows_of, np.bool_)
