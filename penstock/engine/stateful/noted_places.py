"""Places of items, each with what its holding step has said of it when it let it go.

An item that waits at the destination, or whose batch was refused, is released once more later, from the log. What the
step had decided on it is in no state any more: so it goes along, as a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.holding.item import MADE, Items
from penstock.items import ItemKeys, item_keys, outer_item, parents
from penstock.outcome import PLACE_COLUMNS, PLACE_SCHEMA

NOTE = "note"
NOTED_PLACE_SCHEMA: pa.Schema = PLACE_SCHEMA.append(pa.field(NOTE, pa.binary()))
"""The note is null where the step has nothing to say."""


def with_notes(places: pa.RecordBatch, known: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Places with the notes that these rows, which are noted, have for them."""
    noted = [rows.filter(rows.column(NOTE).is_valid()) for rows in known]
    noted = [rows for rows in noted if rows.num_rows]
    if not noted:
        return _noted(places, pa.nulls(places.num_rows, pa.binary()))
    rows = pa.concat_batches(noted)
    theirs, mine = item_keys(ItemKeys.of(rows), ItemKeys.of(places))
    order = np.argsort(theirs)
    at = np.minimum(np.searchsorted(theirs[order], mine), len(order) - 1)
    found = theirs[order][at] == mine
    return _noted(places, rows.column(NOTE).take(pa.array(order[at], mask=~found)))


def as_noted(places: pa.RecordBatch) -> pa.RecordBatch:
    """Places with a column of notes, also if none has one, as those of an older release."""
    return places if NOTE in places.schema.names else with_notes(places, [])


def concat_noted(groups: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The places of all groups, with a column of notes."""
    if all(NOTE not in places.schema.names for places in groups):
        return as_noted(pa.concat_batches(groups))
    return pa.concat_batches([as_noted(places) for places in groups])


def note_items(rows: pa.RecordBatch, items: Items) -> pa.RecordBatch:
    """Rows with the items that a step has let go, which they are or were made of, as their notes."""
    places = places_of(items)
    notes = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(items.dtype.itemsize), len(items), [None, pa.py_buffer(items.tobytes())]
    )
    known = _noted(places, notes.cast(pa.binary()))
    own = with_notes(rows.select(PLACE_COLUMNS), [known]).column(NOTE)
    if own.null_count == 0:
        return _noted(rows, own)
    made = with_notes(parents(rows.select(PLACE_COLUMNS)), [known])
    return _noted(rows, pc.coalesce(own, made.column(NOTE)))


def noted_items(places: pa.RecordBatch, kind: np.dtype[np.void]) -> Items:
    """The items that are noted, each once."""
    notes = as_noted(places).column(NOTE).drop_null().unique()
    found: Items = np.frombuffer(b"".join(notes.to_pylist()), kind)
    return found


def notes_by_place(noted: Iterable[pa.RecordBatch]) -> dict[tuple[int, int, int], bytes]:
    """The notes of items as their step has let them go, by partition, offset and number."""
    found: dict[tuple[int, int, int], bytes] = {}
    for rows in noted:
        for row in rows.filter(rows.column(NOTE).is_valid()).to_pylist():
            found[row["partition"], row["offset"], outer_item(row["item"])] = row[NOTE]
    return found


def without_made(places: pa.RecordBatch, kind: np.dtype[np.void]) -> pa.RecordBatch:
    """Places but for those of items that their step has made."""
    noted = as_noted(places)
    notes = [note is not None and _is_made(note, kind) for note in noted.column(NOTE).to_pylist()]
    return noted.filter(pa.array([not made for made in notes], pa.bool_()))


def _is_made(note: bytes, kind: np.dtype[np.void]) -> bool:
    return bool(np.frombuffer(note, kind)["bits"][0] & MADE)


def places_of(items: Items) -> pa.RecordBatch:
    """The places of items that a step has let go."""
    columns = [pa.array(np.ascontiguousarray(items[name])) for name in PLACE_COLUMNS]
    return pa.RecordBatch.from_arrays(columns, PLACE_COLUMNS).cast(PLACE_SCHEMA)


def _noted(rows: pa.RecordBatch, notes: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [*(rows.column(name) for name in PLACE_COLUMNS), notes], schema=NOTED_PLACE_SCHEMA
    )
