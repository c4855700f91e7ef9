"""Which older entries of its key an entry supersedes: most often, all of them.

Table changes that do not carry their whole row are different. What such an entry leaves out is only in older entries,
and those must stay for whoever reads the log from its beginning:

- an update that leaves columns out (``unchanged``) supersedes older ones that leave out the same columns;
- an update that moves a row to another key supersedes nothing and is never dropped. If it leaves columns out, entries
  of the old key have them, and no later entry supersedes those;
- a row of a table without a key has no newer version that could be recognised; it is never dropped;
- an entry that its source could not read supersedes only others of that kind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.compiled import compiled
from penstock.log.maintenance.compaction_keys import KeyHash
from penstock.record import Header, Op
from penstock.siphash import Words

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FULL = 0
"""Supersedes all older entries of the key."""
BARRIER = 1
"""Needs the older entries of the key: no later entry supersedes them."""
BROKEN = 2
_IN_PART = 4
"""From this value on: the hash of the columns that an entry leaves out."""

_ODD = pa.array([str(Header.UNCHANGED), str(Header.OLD_KEY), str(Header.MALFORMED)])
_OF_ROWS = pa.array([str(Op.INSERT), str(Op.UPDATE), str(Op.DELETE)])
_SHAPES = 64
"""How many different sets of left-out columns are tracked per key; entries with further ones stay."""


class SupersedingEntries(NamedTuple):
    """The entries of a batch that supersede others or can be superseded; ``rows`` are their rows in the batch."""

    keyed: pa.RecordBatch
    """With ``namespace`` and ``key``."""
    rows: Numbers
    says: Words


def superseding_entries(entries: pa.RecordBatch, hashed: KeyHash) -> SupersedingEntries:
    """What the entries of a batch supersede."""
    keyed, rows = entries.select(["namespace", "key"]), np.arange(entries.num_rows)
    odd = pc.any(pc.is_in(entries.column("headers").keys, value_set=_ODD)).as_py()
    nameless = _rows_without_key(entries)
    if not odd and nameless is None:
        return SupersedingEntries(keyed, rows, np.zeros(len(rows), np.uint64))
    unchanged, old_key, broken = (_header(entries, str(name)) for name in _ODD.to_pylist())
    in_part, moved = _there(unchanged), _there(old_key)
    says = np.where(in_part, _hash(unchanged, hashed) | np.uint64(_IN_PART), np.uint64(FULL))
    says = np.where(moved, np.uint64(BARRIER), says)
    says = np.where(_there(broken), np.uint64(BROKEN), says)
    keyed = keyed.set_column(1, keyed.schema.field("key"), pc.if_else(moved, old_key, keyed.column("key")))
    silent = moved & ~in_part
    if nameless is not None:
        silent |= nameless
    chosen = np.flatnonzero(~silent)
    return SupersedingEntries(keyed.take(pa.array(chosen)), chosen, says[chosen])


@compiled
def superseded_flags(high: Words, low: Words, says: Words) -> Flags:
    """Which entries are superseded. They must be sorted by the hash of their key, then by age, oldest first."""
    found = np.zeros(len(says), np.bool_)
    shapes = np.empty(_SHAPES, np.uint64)
    known = 0
    covered = False
    for i in range(len(says) - 1, -1, -1):
        if i == len(says) - 1 or high[i] != high[i + 1] or low[i] != low[i + 1] or says[i] == BARRIER:
            known, covered = 0, False
        if says[i] == BARRIER:
            continue
        if not covered and says[i] != FULL:
            alike = False
            for k in range(known):
                alike |= shapes[k] == says[i]
            found[i] = alike
            if not alike and known < _SHAPES:
                shapes[known] = says[i]
                known += 1
        else:
            found[i] = covered
            covered = True
    return found


def _rows_without_key(entries: pa.RecordBatch) -> Flags | None:
    keys = entries.column("key")
    if keys.null_count == 0:
        return None
    rows = pc.and_(keys.is_null(), pc.is_in(entries.column("op"), value_set=_OF_ROWS))
    found = _flags(rows) & _there(_header(entries, Header.COLUMNS))
    return found if found.any() else None


def _header(entries: pa.RecordBatch, name: str) -> pa.Array:
    return pc.map_lookup(entries.column("headers"), pa.scalar(str(name)), "first")


def _hash(texts: pa.Array, hashed: KeyHash) -> Words:
    high, low = np.empty(len(texts), np.uint64), np.empty(len(texts), np.uint64)
    named = {"namespace": pc.fill_null(texts, ""), "key": pa.nulls(len(texts), pa.string())}
    hashed.hash(pa.RecordBatch.from_pydict(named), high, low)
    return high


def _there(texts: pa.Array) -> Flags:
    return _flags(texts.is_valid())


def _flags(flags: pa.BooleanArray) -> Flags:
    return np.asarray(flags.to_numpy(zero_copy_only=False), np.bool_)
