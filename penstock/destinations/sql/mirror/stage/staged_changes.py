"""The staged changes of one table of a batch, in the order of the log, cut where the table's key changes.

Files are mapped into memory, not read: only what is looked at costs anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.destinations.contract import Order, Part
from penstock.destinations.sql.mirror.fold_changes import Change, Kinds, Numbers
from penstock.destinations.sql.mirror.stage.change_header import MirrorHeader, decode, merge_headers
from penstock.destinations.sql.mirror.stage.change_stager import CHANGE, OLD, VALUE
from penstock.destinations.sql.stage.stager import OFFSET, PARTITION, PLACE

Place = tuple[int, int]
"""Partition and offset of one record."""


@dataclass(frozen=True)
class _Changes:
    rows: pa.Table
    header: MirrorHeader

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @cached_property
    def change(self) -> Kinds:
        """What is to be done to rows: for a beginning, nothing."""
        return np.where(self._said == Change.BEGIN, np.int8(Change.NOTHING), self._said)

    @cached_property
    def _said(self) -> Kinds:
        found: Kinds = self.rows.column(CHANGE).combine_chunks().to_numpy(zero_copy_only=False)
        return found


class StagedStretch(_Changes):
    """Consecutive changes of rows with the same key columns (or none), by the source's names."""

    @property
    def first(self) -> Place:
        return self._place(0)

    @property
    def last(self) -> Place:
        return self._place(len(self) - 1)

    def _place(self, row: int) -> Place:
        partition, offset = (self.rows.column(name)[row].as_py() for name in (PARTITION, OFFSET))
        return int(partition), int(offset)

    @property
    def sources(self) -> list[str]:
        """Every column that the changes name."""
        carried = [_source(name) for name in self.rows.schema.names if name.startswith((VALUE, OLD))]
        return list(dict.fromkeys([*carried, *self.header.key]))

    @property
    def begins_copy(self) -> bool:
        """Whether they begin with the first copy of the table into this log."""
        return bool(self.rows.column(CHANGE)[0].as_py() == Change.BEGIN)

    def with_target_names(self, names: Mapping[str, str], key: tuple[str, ...]) -> Stretch:
        """The same by the target's column names; ``key``, if given, replaces the source's key."""
        ours = key or tuple(names[source] for source in self.header.key)
        # A step may have renamed the source's key columns.
        same = len(ours) == len(self.header.key)
        old = {**names, **(dict(zip(self.header.key, ours, strict=True)) if same else {})}
        found = []
        for name in self.rows.schema.names:
            if name.startswith(VALUE):
                found.append(names[_source(name)])
            else:
                found.append(OLD + old[_source(name)] if name.startswith(OLD) else name)
        columns = tuple(replace(column, name=names[column.source]) for column in self.header.columns)
        return Stretch(self.rows.rename_columns(found), replace(self.header, columns=columns, key=ours))


def _source(name: str) -> str:
    return name.removeprefix(VALUE if name.startswith(VALUE) else OLD)


class Stretch(_Changes):
    """Staged changes by our names."""

    @property
    def beginnings(self) -> int:
        """How many of them say that a first copy begins."""
        return int(np.count_nonzero(self._said == Change.BEGIN))

    @property
    def places(self) -> pa.Table:
        return self.rows.select(PLACE)

    @cached_property
    def carried(self) -> Mapping[str, pa.ChunkedArray]:
        """The values of each column, by our names; null where a change does not carry it."""
        return {column.name: self.rows.column(column.name) for column in self.header.columns}

    def old(self, name: str) -> pa.ChunkedArray | None:
        """The old values of a column, as far as the changes carry them."""
        return self.rows.column(OLD + name) if OLD + name in self.rows.schema.names else None


def stretches(parts: Sequence[Part], order: Order | None = None, behind: Place | None = None) -> list[StagedStretch]:
    """The changes of one table. Where they are cut depends on the log alone, not on how they were staged. With
    ``behind``, only those after this record."""
    files = [
        (decode(part.header), pa.ipc.open_file(pa.memory_map(part.path)).read_all())
        for part in sorted(parts, key=lambda part: (part.partition, part.first_offset))
    ]
    rows = pa.concat_tables([rows for _, rows in files], promote_options="default")
    numbers: dict[tuple[str, ...], int] = {}
    of_file = [numbers.setdefault(header.key, len(numbers)) for header, _ in files]
    key = np.repeat(of_file, [rows.num_rows for _, rows in files])
    sorting = _sorting(rows, order)
    if sorting is not None:
        rows, key = rows.take(pa.array(sorting)), key[sorting]
    if behind is not None:
        later = _later(rows, order, behind)
        rows, key = rows.filter(pa.array(later)), key[later]
    if not len(key):
        return []
    cuts = np.flatnonzero(np.diff(key)) + 1
    return [
        StagedStretch(
            rows.slice(start, end - start),
            merge_headers(header for (header, _), number in zip(files, of_file, strict=True) if number == key[start]),
        )
        for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(key)], strict=True)
    ]


def _places(rows: pa.Table) -> tuple[Numbers, Numbers]:
    partition, offset = (
        rows.column(name).combine_chunks().to_numpy(zero_copy_only=False).astype(np.int64)
        for name in (PARTITION, OFFSET)
    )
    return partition, offset


def _later(rows: pa.Table, order: Order | None, place: Place) -> npt.NDArray[np.bool_]:
    """Which rows come after a record."""
    partition, offset = (np.append(found, at) for found, at in zip(_places(rows), place, strict=True))
    ranks = (partition << 48) | offset if order is None else order.ranks(partition, offset)
    # The rank of the record's own rows depends on their position.
    others = (partition[:-1] != place[0]) | (offset[:-1] != place[1])
    found: npt.NDArray[np.bool_] = others & (ranks[:-1] > ranks[-1])
    return found


def _sorting(rows: pa.Table, order: Order | None) -> Numbers | None:
    """The order of the rows in the log, over all partitions; ``None`` if they are in that order already."""
    partition, offset = _places(rows)
    if order is not None and len(partition) and (partition != partition[0]).any():
        return np.argsort(order.ranks(partition, offset), kind="stable")
    places = (partition << 48) | offset
    return None if (np.diff(places) > 0).all() else np.argsort(places, kind="stable")
