"""Maps the plain events of a batch together, on their bytes: what is taken out of them is looked at once per value, and
the rest is copied.

An event is plain if it has no name twice, says its thread and log in one word, is not in the form of addEvents, and if
its values can stand as they are written. What is made of it means the same as what ``event_mapping`` makes of it, but
numbers and texts keep their spelling. All others are left to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.compiled import borrowing
from penstock.destinations.dataset.event_mapping import (
    DEFAULT_SEVERITY,
    MOST_KNOWN,
    ORIGINAL_HOST,
    EventMapper,
    Group,
    definition,
    level,
    parse,
    take_object,
)
from penstock.destinations.dataset.plain_values import MOST_DEPTH, keep_plain, read_times
from penstock.destinations.dataset.record_origins import find_origins
from penstock.destinations.dataset.write_bodies import (
    EXTRA_BYTES,
    WORD,
    Attributes,
    Heads,
    around_events,
    most_bytes,
    texts,
    write_bodies,
)
from penstock.destinations.sending.staged.keyed_row_file import KeyedBlock, Numbered
from penstock.json.arrow_text import arrow_array, gathered
from penstock.json.leaves import leaves
from penstock.json.tokens import ABSENT
from penstock.outcome import PLACE_COLUMNS
from penstock.record import int64_array, int64_values
from penstock.sessions.session_keys import SERVER_HOST, share_of

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Int8s = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]

_TIME, _THREAD = "_timestamp", "thread"
_SEVERITIES = ("sev", "severity")
_TAKEN = (_TIME, *_SEVERITIES, _THREAD)
"""What is taken out of events one by one, and is an attribute where it does not mean anything."""
_IS_DROPPED = len(_TAKEN) + 1
_DEFINED = (("thread", "id"), ("log", "id"))
"""Where these are, a thread or a log is described."""
MOST_WRITTEN = 256 << 20
"""Bytes that are written together."""
_MOST_MICROS = 9_000_000_000_000_000


class PlainBlock(NamedTuple):
    block: KeyedBlock | None
    is_mapped: Flags
    """Which rows of the batch are in the block."""


class _Values(NamedTuple):
    """The values of wanted names, by name and row: kind ABSENT where there is none."""

    kind: Int8s
    start: Int64s
    end: Int64s


@dataclass(frozen=True)
class PlainEvents:
    mapper: EventMapper
    _known_groups: dict[tuple[bytes | None, ...], Group] = field(default_factory=dict)

    def map(self, batch: pa.RecordBatch, wanted: Flags) -> PlainBlock:
        """Map the plain ones of the wanted rows."""
        if not self._can_be_plain or not wanted.any():
            return PlainBlock(None, np.zeros(len(wanted), np.bool_))
        return _Mapping(self, batch, wanted).map()

    @cached_property
    def group_names(self) -> tuple[str, ...]:
        """The fields that say which session an event belongs to, and which host."""
        return tuple(dict.fromkeys((*self.mapper.fields_of_key, SERVER_HOST, ORIGINAL_HOST)))

    @cached_property
    def dropped_names(self) -> frozenset[str]:
        """Those of them that are no attributes."""
        return frozenset((*self.mapper.fields_of_key, SERVER_HOST))

    @cached_property
    def _can_be_plain(self) -> bool:
        """Whether events are grouped by nothing that is taken out of them before."""
        return not {*self.mapper.fields_of_key} & {*_TAKEN}

    def group(self, values: tuple[bytes | None, ...]) -> Group:
        """The group of events with these values of ``group_names``, as they are written."""
        known = self._known_groups.get(values)
        if known is None:
            named = zip(self.group_names, values, strict=True)
            known = self.mapper.take_group({name: parse(value) for name, value in named if value is not None})
            if len(self._known_groups) >= MOST_KNOWN:
                self._known_groups.clear()
            self._known_groups[values] = known
        return known


class _Mapping:
    """Of one batch."""

    def __init__(self, events: PlainEvents, batch: pa.RecordBatch, wanted: Flags) -> None:
        self._events = events
        self._mapper = events.mapper
        self._batch = batch
        self._found = leaves(batch.column("data"), keep_empty=True)
        self._names = [".".join(path) for path in self._found.paths]
        self._plain = wanted & (self._found.broken_at == -1)
        self._taken = np.full(len(wanted), 1 << _IS_DROPPED, np.int8)

    def map(self) -> PlainBlock:
        found, plain, buffer = self._found, self._plain, self._found.documents.buffer
        self._leave_out_unusual()
        keep_plain(found, plain)
        self._values = self._pick([*self._events.group_names, *_TAKEN])
        nanos, severity = self._times(), self._severities()
        threads, thread_heads = self._threads()
        group_of, groups = self._groups()
        logs, log_heads = _defined(group_of, [group.log for group in groups], b',"log":%b')
        partitions, offsets, items = _places(self._batch)
        origin, origins = find_origins(self._mapper.record_id, partitions, offsets)
        heads = Heads(
            self._taken, severity, nanos, threads.numbers, logs.numbers, origin, partitions, offsets, items,
            texts(thread_heads), texts(log_heads), texts([each.encode() for each in origins]),
        )  # fmt: skip
        attributes = self._attributes()
        around = around_events(None if self._mapper.id_attribute is None else _name(self._mapper.id_attribute))
        room = self._mapper.most - np.array([len(group.session_info) for group in groups], np.int64)[group_of]
        room -= _listed_bytes(threads) + _listed_bytes(logs)
        sizes = most_bytes(attributes, heads, around)
        # What is certainly too large is cut. What is too much together goes one by one.
        plain &= sizes - EXTRA_BYTES <= room
        plain &= np.cumsum(np.where(plain, sizes, 0)) <= MOST_WRITTEN
        out = np.empty(int(sizes[plain].sum()) + WORD, np.uint8)
        ends = write_bodies(buffer, attributes, heads, around, room, plain, out)
        rows = np.flatnonzero(plain)
        if not len(rows):
            return PlainBlock(None, plain)
        key, keys, about = self._keys(group_of[rows], groups, offsets[rows] + items[rows])
        bodies = arrow_array(pa.binary(), out, np.append(0, ends[rows + 1]))
        places = partitions[rows], offsets[rows], items[rows]
        definitions = tuple(Numbered(each.numbers[rows], each.texts) for each in (threads, logs))
        return PlainBlock(KeyedBlock(places, key, keys, about, definitions, bodies), plain)

    def _leave_out_unusual(self) -> None:
        """Take the flag from what has a name twice, describes its thread or its log, is deep, or has the form of
        addEvents."""
        found, paths, plain = self._found, self._found.paths, self._plain
        plain[found.replaced.record] = False
        own_id = self._mapper.id_attribute
        unusual = [
            column
            for column, (path, name) in enumerate(zip(paths, self._names, strict=True))
            if path in _DEFINED or len(path) > MOST_DEPTH or (name == own_id and name not in self._events.dropped_names)
        ]
        plain[self._have(unusual)] = False
        has_time = self._have([column for column, path in enumerate(paths) if path == ("ts",)])
        plain[has_time & self._have([column for column, path in enumerate(paths) if path[0] == "attrs"])] = False
        columns: dict[str, list[int]] = {}
        for column, name in enumerate(self._names):
            columns.setdefault(name, []).append(column)
        for same in columns.values() if len(columns) < len(paths) else ():
            if len(same) > 1:
                counts = np.bincount(found.record[np.isin(found.column, same)], minlength=len(plain))
                plain[counts > 1] = False

    def _have(self, columns: Sequence[int]) -> Flags:
        """Which rows have one of these columns."""
        have = np.zeros(len(self._plain), np.bool_)
        if columns:
            have[self._found.record[np.isin(self._found.column, columns)]] = True
        return have

    def _pick(self, names: Sequence[str]) -> dict[str, _Values]:
        found, number = self._found, {name: number for number, name in enumerate(names)}
        wanted = np.array([number.get(name, -1) for name in self._names] or [-1], np.int64)
        shape = len(names), len(self._plain)
        kind, start, end = np.zeros(shape, np.int8), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        pick_values(found.record, found.column, found.kind, found.start, found.end, wanted, kind, start, end)
        return {name: _Values(kind[number], start[number], end[number]) for number, name in enumerate(names)}

    def _times(self) -> Int64s:
        micros = int64_values(self._batch.column("timestamp"))
        self._plain &= np.abs(micros) <= _MOST_MICROS
        nanos, stated = micros * 1_000, self._values[_TIME]
        if stated.kind.any():
            read = read_times(self._found.documents.buffer, stated.kind, stated.start, stated.end, nanos, self._plain)
            self._take(_TIME, read)
        return nanos

    def _severities(self) -> Int8s:
        severity = np.full(len(self._plain), -1, np.int8)
        for name in _SEVERITIES:
            numbers, values = self._distinct(name)
            if values:
                levels = [level(parse(value)) for value in values]
                found = np.array([*(-1 if each is None else each for each in levels), -1], np.int8)[numbers]
                is_taken = (severity < 0) & (found >= 0)
                severity[is_taken] = found[is_taken]
                self._take(name, is_taken)
        severity[severity < 0] = DEFAULT_SEVERITY
        return severity

    def _threads(self) -> tuple[Numbered, list[bytes]]:
        numbers, values = self._distinct(_THREAD)
        most = self._mapper.most
        taken = [take_object({_THREAD: value}, {_THREAD: value}, _THREAD, most) for value in map(parse, values)]
        threads, heads = _defined(numbers, [definition(each, "name", most) for each in taken], b'"thread":%b,')
        self._take(_THREAD, threads.numbers >= 0)
        return threads, heads

    def _groups(self) -> tuple[Int64s, list[Group]]:
        """Of each row the number of its group, and the groups."""
        numbers = np.zeros(len(self._plain), np.int64)
        combined: list[tuple[Int64s, list[bytes]]] = []
        for name in self._events.group_names:
            own, values = self._distinct(name)
            combined.append((own, values))
            if values:
                numbers, _ = _encoded(int64_array(numbers * (len(values) + 1) + own + 1))
        first = np.zeros(int(numbers.max(initial=0)) + 1, np.int64)
        first[numbers[::-1]] = np.arange(len(numbers))[::-1]
        groups = [
            self._events.group(tuple(values[own[row]] if own[row] >= 0 else None for own, values in combined))
            for row in first.tolist()
        ]
        return numbers, groups

    def _distinct(self, name: str) -> tuple[Int64s, list[bytes]]:
        """The values of a name in plain rows, as they are written: each once, and of each row the number of its own, or
        -1."""
        values = self._values[name]
        there = self._plain & (values.kind != ABSENT)
        if not there.any():
            return np.full(len(there), -1, np.int64), []
        lengths = np.where(there, values.end - values.start, 0)
        numbers, distinct = _encoded(gathered(self._found.documents.buffer, values.start, lengths, there))
        return numbers, distinct.to_pylist()

    def _take(self, name: str, rows: Flags) -> None:
        """Note that a name of some rows is no attribute."""
        self._taken[rows] |= np.int8(1 << (_TAKEN.index(name) + 1))

    def _attributes(self) -> Attributes:
        found = self._found
        role = [
            _IS_DROPPED if name in self._events.dropped_names else _TAKEN.index(name) + 1 if name in _TAKEN else 0
            for name in self._names
        ]
        is_top = [len(path) == 1 for path in found.paths]
        names = texts([_name(name) for name in self._names])
        return Attributes(
            found.record,
            found.column,
            found.start,
            found.end,
            names,
            np.array(is_top, np.bool_),
            np.array(role, np.int8),
        )

    def _keys(
        self, group_of: Int64s, groups: Sequence[Group], numbers: Int64s
    ) -> tuple[Int64s, list[str], list[bytes]]:
        """Of each row the number of its key, the keys, and what is said of each."""
        shares = self._mapper.shares
        key = group_of * shares + numbers % shares
        keys = [share_of(group.key, share, shares) for group in groups for share in range(shares)]
        return key, keys, [group.session_info for group in groups for _ in range(shares)]


def _defined(
    numbers: Int64s, definitions: Sequence[tuple[str | None, bytes | None]], head: bytes
) -> tuple[Numbered, list[bytes]]:
    """What rows refer to, by number, and how each event says so."""
    there = [(name, text) for name, text in definitions if name is not None and text is not None]
    known = iter(range(len(there)))
    place = [-1 if name is None or text is None else next(known) for name, text in definitions]
    return (
        Numbered(np.array([*place, -1], np.int64)[numbers], [text for _, text in there]),
        [head % orjson.dumps(name) for name, _ in there],
    )


def _listed_bytes(defined: Numbered) -> Int64s:
    """What the definitions to which rows refer take in a request."""
    return np.array([*(len(text) + 1 for text in defined.texts), 0], np.int64)[defined.numbers]


def _encoded(values: pa.Array) -> tuple[Int64s, pa.Array]:
    """Of each value the number of its first likeness, in the order of appearance, -1 for null; and the values."""
    encoded = pc.dictionary_encode(values)
    return pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64), encoded.dictionary


def _places(batch: pa.RecordBatch) -> tuple[Int64s, Int64s, Int64s]:
    partitions, offsets, items = (int64_values(batch.column(name).cast(pa.int64())) for name in PLACE_COLUMNS)
    return partitions, offsets, items


def _name(name: str) -> bytes:
    return orjson.dumps(name) + b":"


@borrowing
def pick_values(
    record: Int32s, column: Int32s, leaf_kind: Int8s, leaf_start: Int64s, leaf_end: Int64s,
    wanted: Int64s, kind: Int8s, start: Int64s, end: Int64s,
) -> None:  # fmt: skip
    """Fill in the values of columns that are wanted, under the number that ``wanted`` has for them."""
    for leaf in range(len(record)):
        number = wanted[column[leaf]]
        if number >= 0:
            row = record[leaf]
            kind[number, row] = leaf_kind[leaf]
            start[number, row] = leaf_start[leaf]
            end[number, row] = leaf_end[leaf]
