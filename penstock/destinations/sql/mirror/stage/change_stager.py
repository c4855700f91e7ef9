"""From records to changes, inside a task: which table, what happens to it, and the values of each column.

A staged value is its JSON text, which tells ``null`` (the column becomes NULL) from nothing (the record does not carry
the column). Its type at the target is decided when the table is known. A record that concerns no row (the end of a
copy, an unknown command, an object without members) is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.contract import Part, Stager
from penstock.destinations.sql.mirror.fold_changes import Bools, Change, Kinds, Numbers
from penstock.destinations.sql.mirror.stage.change_header import MirrorColumn, MirrorHeader, merge_headers
from penstock.destinations.sql.mirror.stage.mirror_names import MirrorTableChooser
from penstock.destinations.sql.stage.stager import OFFSET, PARTITION, PLACE, flush_many
from penstock.destinations.sql.stage.table_files import FILE_ROWS, HeldRows, create_arrow_file
from penstock.flatten.inner_types import InnerType
from penstock.flatten.values.text_values import verbatim_array
from penstock.flatten.values.to_arrow import infer_column
from penstock.flatten.values.value_spans import Spans, by_column
from penstock.json.document_problems import Problem, problem
from penstock.json.find import find
from penstock.json.leaves import Leaves, fields
from penstock.json.paths import parse_path
from penstock.json.tokens import NULL, TRUE, Kind
from penstock.outcome import PLACE_COLUMNS, Outcome, failures_of
from penstock.record import Header, Mode, Op
from penstock.steps.outcomes import settle

NULL_TEXT = "null"
"""A staged value that is NULL."""
CHANGE = "@change"
"""The column that says what happens (``Change``)."""
VALUE = "@new "
"""Prefix of the source's names of value columns. The table decides what they are called at the target."""
OLD = "@old "
"""Prefix of columns with the old key of a row that moves, or with all its old values if it has no key."""


class MirrorStager(Stager):
    """``casts`` are types that steps ask for, by JSON path."""

    def __init__(self, directory: Path, names: MirrorTableChooser, casts: Mapping[str, str]) -> None:
        self._directory = directory
        self._names = names
        self._casts = {path[0]: asked for text, asked in casts.items() if len(path := parse_path(text)) == 1}
        self._tables: dict[str, MirrorFiles] = {}

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        change = _changes(batch)
        taken = np.zeros(batch.num_rows, np.bool_)
        failures: list[pa.RecordBatch] = []
        for namespace, rows in _by_namespace(batch, change != Change.NOTHING):
            choice = self._names.table(namespace)
            if choice.problem:
                failures.append(failures_of(batch.take(pa.array(rows)), choice.code, choice.problem))
            elif choice.table:
                for piece in _cut_by_declaration(batch, rows, change):
                    if piece.problem:
                        failures.append(failures_of(piece.rows, "bad_header", piece.problem))
                        continue
                    staged = self._staged(piece)
                    failures += staged.failures
                    if staged.rows.num_rows:
                        self._files(choice.table).append(staged.rows, staged.header)
                    taken[piece.places[staged.taken]] = True
        flush_many(self._tables.values())
        return settle(batch, taken, failures)

    def finish(self) -> list[Part]:
        return [part for files in self._tables.values() for part in files.finish()]

    def _files(self, table: str) -> MirrorFiles:
        if table not in self._tables:
            self._tables[table] = MirrorFiles(self._directory, table)
        return self._tables[table]

    def _staged(self, piece: _Piece) -> _Staged:
        rows = piece.rows
        truncates = _empties(piece.change)
        found = fields(_values(rows, piece.change))
        moved = fields(piece.old)
        taken = truncates.copy()
        taken[found.record] = True
        broken = {**_unreadable_rows(found, ~truncates), **_unreadable_rows(moved, moved.documents.valid)}
        taken[list(broken)] = False
        places = rows.select(PLACE_COLUMNS).filter(pa.array(taken))
        arrays = {**dict(zip(PLACE, places.columns, strict=True)), CHANGE: pa.array(piece.change[taken])}
        columns = []
        for source, spans in _in_order(found, taken, piece.columns):
            columns.append(self._column(source, piece.columns.get(source), spans))
            arrays[VALUE + source] = verbatim_array(spans, places.num_rows)
        for source, left_out in _unchanged_columns(rows, taken):
            if VALUE + source in arrays:
                # A step may have turned an absent value into null.
                nothing = pc.and_(left_out, pc.equal(arrays[VALUE + source], NULL_TEXT))
                arrays[VALUE + source] = pc.if_else(nothing, pa.scalar(None, pa.string()), arrays[VALUE + source])
        for source, spans in _in_order(moved, taken, piece.columns):
            arrays[OLD + source] = verbatim_array(spans, places.num_rows)
        return _Staged(
            pa.table(arrays),
            MirrorHeader(tuple(columns), tuple(piece.key), (rows.column("namespace")[0].as_py(),)),
            taken,
            [failures_of(rows.slice(row, 1), problem.code, problem.message) for row, problem in broken.items()],
        )

    def _column(self, source: str, declared: str | None, spans: Spans) -> MirrorColumn:
        asked = self._casts.get(source)
        if asked is not None or declared is not None:
            return MirrorColumn(source, source, asked, declared)
        nested = not spans.kinds.isdisjoint((Kind.ARRAY, Kind.OBJECT))
        return MirrorColumn(source, source, values=None if nested else _inner_type(spans), nested=nested)


@dataclass(frozen=True)
class _Piece:
    """Records of one table with the same declarations of the source."""

    rows: pa.RecordBatch
    places: Numbers
    """Their places in the batch."""
    change: Kinds
    columns: Mapping[str, str]
    """Column to declared type, in the source's order."""
    key: Sequence[str]
    problem: str = ""
    """Why the source's declarations cannot be read."""

    @property
    def old(self) -> pa.Array:
        return _header(self.rows, Header.OLD_KEY)


@dataclass(frozen=True)
class _Staged:
    rows: pa.Table
    header: MirrorHeader
    taken: Bools
    failures: list[pa.RecordBatch]


class MirrorFiles(HeldRows):
    """The staged files of one table in one task, each an Arrow file of changes with one header. Takes pieces in the
    order of the log and holds them back until they fill a file, or until ``flush``."""

    def __init__(self, directory: Path, table: str) -> None:
        super().__init__(directory, table, create_arrow_file)
        self._headers: list[MirrorHeader] = []

    def append(self, rows: pa.Table, header: MirrorHeader) -> None:
        if not all(held.shares_a_file_with(header) for held in self._headers):
            self.flush()
        self._held.append(rows)
        if header not in self._headers:
            self._headers.append(header)
        if sum(piece.num_rows for piece in self._held) >= FILE_ROWS:
            self.flush()

    def _part(self, path: Path, rows: pa.Table) -> Part:
        place = rows.column(PARTITION)[0].as_py(), rows.column(OFFSET)[0].as_py()
        header, self._headers = merge_headers(self._headers), []
        return Part(self._table, str(path), rows.num_rows, *place, header.encode())


def _changes(batch: pa.RecordBatch) -> Kinds:
    """What each record does."""
    op = batch.column("op")
    found = np.full(batch.num_rows, Change.NOTHING, np.int8)
    found[_is(op, Op.INSERT)] = Change.INSERT
    found[_is(op, Op.UPDATE)] = Change.UPDATE
    found[_is(op, Op.DELETE)] = Change.DELETE
    commands = np.flatnonzero(_is(op, Op.COMMAND))
    if len(commands):
        said = find(batch.column("data").take(pa.array(commands)), [("truncate",), ("first",)]).kind == TRUE
        found[commands[said[:, 0]]] = Change.TRUNCATE
        found[commands[said[:, 0] & said[:, 1]]] = Change.BEGIN
    found[_is(batch.column("mode"), Mode.COMPLETE)] = Change.NOTHING
    return found


def _empties(change: Kinds) -> Bools:
    found: Bools = (change == Change.TRUNCATE) | (change == Change.BEGIN)
    return found


def _is(column: pa.Array, word: str) -> Bools:
    found: Bools = pc.equal(column, word).to_numpy(zero_copy_only=False)
    return found


def _by_namespace(batch: pa.RecordBatch, chosen: Bools) -> Iterator[tuple[str, Numbers]]:
    names = batch.column("namespace").dictionary_encode()
    codes = names.indices.to_numpy(zero_copy_only=False)
    for code, namespace in enumerate(names.dictionary.to_pylist()):
        rows = np.flatnonzero(chosen & (codes == code))
        if len(rows):
            yield namespace, rows


def _cut_by_declaration(batch: pa.RecordBatch, places: Numbers, change: Kinds) -> Iterator[_Piece]:
    """The chosen rows, cut where the source's declarations for the table change."""
    rows = batch if len(places) == batch.num_rows else batch.take(pa.array(places))
    headers = [_header(rows, name).dictionary_encode() for name in (Header.COLUMNS, Header.KEY)]
    codes = [header.indices.fill_null(-1).to_numpy(zero_copy_only=False) for header in headers]
    cuts = np.flatnonzero((np.diff(codes[0]) != 0) | (np.diff(codes[1]) != 0)) + 1
    for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), rows.num_rows], strict=True):
        piece = _Piece(rows.slice(start, end - start), places[start:end], change[places[start:end]], {}, ())
        columns, key = (header[start].as_py() for header in headers)
        try:
            yield replace(piece, columns=_columns(columns or "{}"), key=_names(key or "[]", Header.KEY))
        except ValueError as error:
            yield replace(piece, problem=str(error))


def _columns(text: str) -> Mapping[str, str]:
    found = json.loads(text)
    if not isinstance(found, dict) or not all(isinstance(declared, str) for declared in found.values()):
        raise ValueError(f"the header 'columns' is no object of types: {text[:200]}")
    return found


def _names(text: str, header: Header) -> Sequence[str]:
    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"the header '{header}' is no list of columns: {text[:200]}")
    return found


def _header(rows: pa.RecordBatch, name: str) -> pa.Array:
    return pc.map_lookup(rows.column("headers"), pa.scalar(name), "last")


def _unchanged_columns(rows: pa.RecordBatch, taken: Bools) -> Iterator[tuple[str, pa.BooleanArray]]:
    """The columns that some updates say they leave unchanged, each with those updates."""
    header = _header(rows, Header.UNCHANGED)
    if header.null_count == len(header):
        return
    texts = header.filter(pa.array(taken)).dictionary_encode()
    for number, text in enumerate(texts.dictionary.to_pylist()):
        with suppress(ValueError):  # an absent column stays unchanged anyway
            for source in _names(text, Header.UNCHANGED):
                yield source, pc.fill_null(pc.equal(texts.indices, number), False)


def _values(rows: pa.RecordBatch, change: Kinds) -> pa.Array:
    """The objects that hold the values of columns. A delete may have only its key."""
    data = rows.column("data")
    if _empties(change).any():
        data = pc.if_else(pa.array(_empties(change)), pa.scalar(None, data.type), data)
    if (change == Change.DELETE).any() and data.null_count:
        keys = pc.if_else(pa.array(change == Change.DELETE), rows.column("key"), pa.scalar(None, pa.string()))
        data = pc.coalesce(data, keys.cast(data.type))
    return data


def _unreadable_rows(found: Leaves, counts: Bools) -> dict[int, Problem]:
    """The problem of each row that should be a JSON object and is not."""
    rows = np.flatnonzero((found.broken_at != -1) & counts).tolist()
    return {row: problem(found.documents, row, int(found.broken_at[row])) for row in rows}


def _in_order(found: Leaves, taken: Bools, columns: Mapping[str, str]) -> Iterator[tuple[str, Spans]]:
    """The values by column: declared columns in the source's order, others after them."""
    number = np.cumsum(taken, dtype=np.int32) - np.int32(1)
    declared = {name: place for place, name in enumerate(columns)}
    every = zip((path[0] for path in found.paths), by_column(found, np.arange(len(taken), dtype=np.int32)), strict=True)
    for source, spans in sorted(every, key=lambda item: declared.get(item[0], len(declared))):
        if not taken.all():
            spans = spans.where(taken[spans.row])
        yield source, replace(spans, row=number[spans.row])


def _inner_type(spans: Spans) -> InnerType | None:
    known = spans.where(spans.kind != NULL)
    if not len(known):
        return None
    kinds = frozenset(Kind(kind) for kind in np.unique(known.kind).tolist())
    return infer_column(replace(known, kinds=kinds), int(known.row[-1]) + 1, infer_timestamps=False).type
