"""Values whose key is repeated in their object, for ``_unmapped``: each under its path, so that it is not lost."""

from __future__ import annotations

import numpy as np

from penstock.compiled import Bytes
from penstock.flatten.unmapped.unmapped_column import Leftover
from penstock.flatten.values.value_spans import Int32s, Spans
from penstock.json.leaves import Replaced
from penstock.json.paths import format_path
from penstock.json.tokens import STRING, Kind


def replaced_values(found: Replaced, buffer: Bytes, row_of_record: Int32s) -> list[Leftover]:
    """Each under its path with a number, ``/a#1`` for the first value: ``/a`` alone may be the key of a value that lost
    its column to another path."""
    if not len(found):
        return []
    order = np.lexsort((found.start, found.record, found.path))
    record, path, kind = found.record[order], found.path[order], found.kind[order]
    # Spans leave out the quotes of strings.
    quote = (kind == STRING).astype(np.int64)
    start, end = found.start[order] + quote, found.end[order] - quote
    first = (np.diff(path, prepend=-1) != 0) | (np.diff(record, prepend=-1) != 0)
    places = np.arange(len(path))
    time = places - places[first][np.cumsum(first) - 1]
    leftovers = []
    for place, again in np.unique(np.stack([path, time], axis=1), axis=0).tolist():
        chosen = (path == place) & (time == again)
        key = f"{format_path(found.paths[place])}#{again + 1}"
        spans = Spans(buffer, row_of_record[record[chosen]], kind[chosen], start[chosen], end[chosen], frozenset(Kind))
        leftovers.append(Leftover(key, spans))
    return leftovers
