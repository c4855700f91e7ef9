"""The rows of many small bundles of one kind, made at once.

Each bundle's rows are what ``rows_of_bundle`` makes of it, except that the columns are those of all of them: what a
bundle lacks is null, and a column whose values differ in kind from bundle to bundle has them as they were sent, so that
only the table decides how they are stored. What is to be refused, and why, is left to ``rows_of_bundle``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.conflation.fold_rows import Said, object_numbers
from penstock.conflation.kinds import Sync
from penstock.destinations.state.bundle_rows import RowList, RowRules, find_in_data, flat_rows
from penstock.destinations.state.store.contract import StateRows
from penstock.errors import RefusedError
from penstock.json.arrow_text import gathered
from penstock.json.containers import count_elements, element_spans
from penstock.json.find import Found
from penstock.json.paths import parse_path
from penstock.json.tokens import ARRAY


def rows_of_each(datas: Sequence[bytes], rules: RowRules) -> Sequence[StateRows] | None:
    """The rows of complete bundles, or of deltas; ``None`` if anything is to be refused in any of them, or if their
    keys are of several kinds."""
    where = parse_path(rules.pointer)
    try:
        found = find_in_data(datas, [where])
    except RefusedError:
        return None
    if (found.kind[:, 1] != ARRAY).any():
        return None
    documents, counts = _elements(found)
    whose = np.repeat(np.arange(len(datas)), counts)
    try:
        table, columns = flat_rows([RowList(0, Said.PUT, rules.pointer, documents)], rules)
    except RefusedError:
        return None
    if any(column.json and column.name in rules.key for column in columns):
        # What another source calls its objects must not decide which of this one's are the same.
        return None
    objects = [table.column(name).combine_chunks() for name in rules.key] if table.num_rows else []
    numbers = object_numbers([pa.array(whose), *objects], len(whose))
    if len(numbers) and int(numbers.max()) + 1 < len(numbers):
        return None
    said = np.full(len(whose), Said.PUT, np.int8)
    prunes = rules.sync is Sync.COMPLETE
    return [
        StateRows(table.slice(start, end - start), columns, said[start:end], prunes)
        for start, end in pairwise(np.cumsum([0, *counts]).tolist())
    ]


def _elements(found: Found) -> tuple[pa.BinaryArray, Sequence[int]]:
    """The elements of all arrays, and how many each of them has."""
    starts, ends = (np.ascontiguousarray(spans[:, 1]) for spans in (found.value_start, found.value_end))
    counts = count_elements(found.buffer, starts, ends, np.ones(len(starts), np.bool_)).tolist()
    spans = [
        element_spans(found.buffer, start, end, count)
        for start, end, count in zip(starts.tolist(), ends.tolist(), counts, strict=True)
    ]
    firsts, lasts = (np.concatenate(each) for each in zip(*spans, strict=True))
    return gathered(found.buffer, firsts, lasts - firsts), counts
