"""Bundles between the tasks and the driver: an Arrow file per task, mapped and not read.

In memory are the columns that say what each bundle is; its bytes are looked at when it is written. A bundle that made
others needless carries their number, so that all that was staged is accounted for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.conflation.bundle import Bundle, Place
from penstock.conflation.kinds import Kinds, Sync
from penstock.conflation.newest import Flags, Numbers, VersionColumn, codes_of, newest_rows
from penstock.conflation.read_bundles import BUNDLE_SCHEMA
from penstock.conflation.version import parse_version
from penstock.destinations.contract import Part
from penstock.destinations.state.waiting_bundles import SourceKind
from penstock.record import int64_array, int64_values

TABLE = "bundles"
CONFLATED = "conflated"
STAGED_SCHEMA: pa.Schema = BUNDLE_SCHEMA.append(pa.field(CONFLATED, pa.int64(), nullable=False))
"""``conflated``: how many bundles of its source and kind were left out for it."""

_DATA = BUNDLE_SCHEMA.get_field_index("data")
_SMALL = [name for name in STAGED_SCHEMA.names if name != "data"]


def keep_newest(batches: Sequence[pa.RecordBatch], kinds: Kinds) -> list[pa.RecordBatch]:
    """The bundles that somebody may need, of batches in the order of the log. The bytes of others are not touched."""
    if not batches:
        return []
    kept, conflated = _newest(pa.concat_batches([batch.select(_SMALL) for batch in batches]), kinds)
    found, start = [], 0
    for batch in batches:
        end = start + batch.num_rows
        rows = pa.array(np.flatnonzero(kept[start:end]))
        counted = batch.set_column(
            STAGED_SCHEMA.get_field_index(CONFLATED), STAGED_SCHEMA.field(CONFLATED), int64_array(conflated[start:end])
        )
        if len(rows):
            found.append(counted.take(rows))
        start = end
    return found


def _newest(rows: pa.RecordBatch, kinds: Kinds) -> tuple[Flags, Numbers]:
    """Which rows to keep, and how many others each of them stands for."""
    kind_codes = codes_of(rows.column("kind"))
    groups = codes_of(rows.column("source")) * (int(kind_codes.max(initial=0)) + 1) + kind_codes
    _, groups = np.unique(groups, return_inverse=True)
    complete, is_delta = (_are(rows.column("kind"), kinds, sync) for sync in (Sync.COMPLETE, Sync.DELTA))
    # Only a delta is one of its base: another bundle may name one, but says nothing about others by that.
    base = pc.if_else(is_delta, rows.column("base"), pa.scalar(None, pa.string()))
    versions, bases = VersionColumn.parse(rows.column("version")), VersionColumn.parse(base)
    kept = newest_rows(groups, versions, bases, complete.to_numpy(zero_copy_only=False))
    before = int64_values(rows.column(CONFLATED))
    left_out = np.bincount(groups, before + ~kept).astype(np.int64)
    conflated = np.zeros(len(groups), np.int64)
    _, first = np.unique(groups[kept], return_index=True)
    conflated[np.flatnonzero(kept)[first]] = left_out
    return kept, conflated


def _are(column: pa.StringArray, kinds: Kinds, sync: Sync) -> pa.BooleanArray:
    """Which rows are of kinds that are synchronised so."""
    names = pa.array([name for name in kinds if kinds[name].sync is sync], pa.string())
    return pc.is_in(column, value_set=names)


class BundleFile:
    """A file that is written, batch by batch; made with the first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._path, STAGED_SCHEMA)
        for batch in batches:
            self._writer.write_batch(batch)

    def finish(self, rows: int, first: Place) -> Part:
        assert self._writer is not None, "nothing was written"
        self._writer.close()
        return Part(TABLE, str(self._path), rows, first.partition, first.offset)


@dataclass(frozen=True)
class StagedBundles:
    """The bundles of a batch that are left when all parts are looked at together."""

    bundles: Sequence[Bundle]
    """In the order of the log."""
    conflated: Mapping[SourceKind, int]
    """How many others were left out for them."""
    _rows: Mapping[Place, tuple[pa.RecordBatch, int]]

    def data(self, bundle: Bundle) -> bytes:
        """The bundle's bytes, read from its file."""
        batch, row = self._rows[bundle.place]
        data: bytes = batch.column(_DATA)[row].as_py()
        return data

    def size(self, bundle: Bundle) -> int:
        """How many bytes it has."""
        batch, row = self._rows[bundle.place]
        return len(batch.column(_DATA)[row].as_buffer())

    def received(self, bundle: Bundle) -> float:
        """When it came, in seconds since 1970."""
        batch, row = self._rows[bundle.place]
        micros: int = batch.column("timestamp")[row].value
        return micros / 1_000_000


def load_staged(parts: Sequence[Part], kinds: Kinds) -> StagedBundles:
    """Map the files of all parts, and keep the newest bundles of all of them."""
    ordered = sorted(parts, key=lambda part: (part.partition, part.first_offset))
    mapped = [batch for part in ordered for batch in _mapped(part.path)]
    if not mapped:
        return StagedBundles([], {}, {})
    small = pa.concat_batches([batch.select(_SMALL) for batch in mapped])
    kept, counts = _newest(small, kinds)
    ends = np.cumsum([batch.num_rows for batch in mapped])
    rows: dict[Place, tuple[pa.RecordBatch, int]] = {}
    conflated: Counter[SourceKind] = Counter()
    bundles = []
    # Row by row: what is left is about one per source and kind, each of which costs a transaction.
    chosen = np.flatnonzero(kept)
    left = small.take(pa.array(chosen)).drop_columns(["timestamp"]).to_pylist()
    for row, facts, count in zip(chosen.tolist(), left, counts[chosen].tolist(), strict=True):
        bundle = _bundle(facts)
        of = int(np.searchsorted(ends, row, "right"))
        rows[bundle.place] = mapped[of], row - int(ends[of]) + mapped[of].num_rows
        conflated[bundle.source, bundle.kind] += count
        bundles.append(bundle)
    return StagedBundles(bundles, {key: count for key, count in conflated.items() if count}, rows)


def _mapped(path: str) -> list[pa.RecordBatch]:
    reader = pa.ipc.open_file(pa.memory_map(path))
    return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def _bundle(facts: Mapping[str, str | int | None]) -> Bundle:
    version, depends_on, base = (
        None if (text := facts[name]) is None else parse_version(str(text))
        for name in ("version", "depends_on", "base")
    )
    assert version is not None, "a bundle without a version was refused before"
    place = Place(*(int(facts[name] or 0) for name in ("partition", "offset", "item")))
    return Bundle(str(facts["source"]), str(facts["kind"]), version, place, depends_on, base)
