"""What an entry says of the older ones of its key: most often, that they are superfluous.

Changes of tables that do not tell all of their row are different. What such an entry leaves out is only in older
entries, and those must stay for whoever reads the log from its beginning:

- an update that leaves columns out (``unchanged``) stands for older ones that leave out the same columns;
- an update that moves a row to another key stands for nothing and never goes. If it leaves columns out, they are in
  entries of the old key, which nothing that comes later makes superfluous;
- a row of a table without a key has no newer version that could be known; it never goes;
- an entry that its source could not read stands for others of that kind only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.compiled import compiled
from penstock.log.maintenance.compaction_keys import KeyHash, Words
from penstock.record import Header, Op

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FULL = 0
"""Older entries of the key are superfluous."""
BARRIER = 1
"""Older entries of the key are read here; what comes later says nothing about them."""
BROKEN = 2
_IN_PART = 4
"""From here on: the hash of what an entry leaves out."""

_ODD = pa.array([str(Header.UNCHANGED), str(Header.OLD_KEY), str(Header.MALFORMED)])
_OF_ROWS = pa.array([str(Op.INSERT), str(Op.UPDATE), str(Op.DELETE)])
_SHAPES = 64
"""So many entries of a key that leave out different columns are told apart; further ones stay."""


class Told(NamedTuple):
    """The entries of a batch that have something to say, and by ``rows`` which ones of the batch they are."""

    keyed: pa.RecordBatch
    """With ``namespace`` and ``key``."""
    rows: Numbers
    says: Words


def told(entries: pa.RecordBatch, hashed: KeyHash) -> Told:
    """What the entries of a batch say of older ones."""
    keyed, rows = entries.select(["namespace", "key"]), np.arange(entries.num_rows)
    odd = pc.any(pc.is_in(entries.column("headers").keys, value_set=_ODD)).as_py()
    nameless = _rows_without_key(entries)
    if not odd and nameless is None:
        return Told(keyed, rows, np.zeros(len(rows), np.uint64))
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
    return Told(keyed.take(pa.array(chosen)), chosen, says[chosen])


@compiled
def superfluous(high: Words, low: Words, says: Words) -> Flags:
    """Which entries are, of those told; they are sorted by the hash of their key and then by age, oldest first."""
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
