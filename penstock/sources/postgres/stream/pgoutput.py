"""The messages of logical replication (``pgoutput``, protocol 1), parsed by compiled code, many at a time.

A scan goes through messages until one needs Python (a relation is described) and lists the wanted changes: not those of
tables that are not selected, not those that a table's copy or the log already has. Every change counts in its
transaction whether it is wanted or not, so the numbers are the same when the server sends a transaction again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes, compiled
from penstock.sources.postgres.rows.row_fields import ABSENT, NULL, UNCHANGED, Fields, Places
from penstock.sources.postgres.rows.row_json import Numbers, Rows
from penstock.sources.postgres.rows.scratch import Scratch
from penstock.sources.postgres.stream_position import ChangePosition, Lsn

WAL_HEADER_BYTES = 25
"""In front of every message: its kind, two positions in the write-ahead log, a time."""

_STATES = 7


class ChangeOp(IntEnum):
    INSERT = 0
    UPDATE = 1
    DELETE = 2
    TRUNCATE = 3


class StopReason(IntEnum):
    END = 0
    RELATION = 1
    UNKNOWN = 2
    """The message, or a relation in it, is not known."""


class KnownRelations(NamedTuple):
    """The relations that the server has described in this session, sorted by oid."""

    oids: Numbers
    columns: npt.NDArray[np.int32]
    layout: npt.NDArray[np.int32]
    """Which layout the relation has; -1: its changes are not wanted."""
    since: Numbers
    """Transactions that committed before are in the table's copy."""


@dataclass
class StreamCursor:
    """Where we are in the stream. Compiled code works on the array."""

    state: Numbers = field(default_factory=lambda: np.zeros(_STATES, np.int64))

    @classmethod
    def after(cls, taken: ChangePosition) -> StreamCursor:
        """The cursor at the start of a session; the log has the changes up to and including this one."""
        cursor = cls()
        cursor.state[_TAKEN_COMMIT], cursor.state[_TAKEN_NUMBER] = taken.commit, taken.number
        return cursor

    @property
    def inside(self) -> bool:
        """Whether the last message seen is inside a transaction."""
        return bool(self.state[_INSIDE])

    @property
    def here(self) -> ChangePosition:
        """The next change, as far as its transaction is known."""
        return ChangePosition(int(self.state[_COMMIT]), int(self.state[_NUMBER]))

    @property
    def end(self) -> Lsn:
        """Where the last complete transaction ends; 0: none was seen."""
        return int(self.state[_END])


class Changes(NamedTuple):
    """Changes in order; the columns of each row are in ``fields``."""

    op: npt.NDArray[np.uint8]
    layout: npt.NDArray[np.int32]
    first_field: Numbers
    """The row: the new one, or of a delete what is known of the old one; negative for a truncate."""
    first_old: Numbers
    """What is known of the row that an update replaced; negative: nothing."""
    commit: Numbers
    number: Numbers
    time: Numbers
    """When the transaction committed, in microseconds since 2000."""
    fields: Fields

    @property
    def rows(self) -> Rows:
        return Rows(self.layout, self.first_field)

    @property
    def old_rows(self) -> Rows:
        return Rows(self.layout, self.first_old)


class Scan:
    """The messages of one buffer, gone through from relation to relation."""

    def __init__(self, buffer: Bytes, starts: Numbers, cursor: StreamCursor, scratch: Scratch) -> None:
        """``starts``: where each message begins, and where the last one ends."""
        self._starts = starts
        self._cursor = cursor
        messages = len(starts) - 1
        # One change each, but for a truncate, where every relation takes four bytes.
        truncates = bool((buffer[starts[:-1] + WAL_HEADER_BYTES] == _TRUNCATE).any())
        most = len(buffer) // 4 + 1 if truncates else messages
        most_fields = min(len(buffer), 2 * _MOST_COLUMNS * messages)
        self._found = Changes(
            scratch.bytes("op", most),
            scratch.int32("layout", most),
            scratch.int64("first_field", most),
            scratch.int64("first_old", most),
            scratch.int64("commit", most),
            scratch.int64("number", most),
            scratch.int64("time", most),
            Fields(buffer, scratch.int32("starts", most_fields), scratch.int32("ends", most_fields)),
        )
        self._message = self._count = self._fields = 0

    def advance(self, known: KnownRelations) -> tuple[StopReason, int]:
        """Up to the end, or to a message that needs a look: why, and the place of that message in the buffer."""
        self._message, self._count, self._fields, why = _scan(
            self._starts, self._message, known, self._cursor.state, self._found, self._count, self._fields
        )
        place = int(self._starts[self._message])
        if why == _RELATION_WHY:
            self._message += 1
        return StopReason(why), place

    def changes(self) -> Changes:
        """Those that were found since the last time. Good until the scan goes on, or another one uses the memory."""
        count, fields = self._count, self._fields
        self._count = self._fields = 0
        text, starts, ends = self._found.fields
        rows = (column[:count] for column in self._found[:-1])
        return Changes._make((*rows, Fields(text, starts[:fields], ends[:fields])))


_MOST_COLUMNS = 1_664
_INSIDE, _COMMIT, _NUMBER, _TIME, _END, _TAKEN_COMMIT, _TAKEN_NUMBER = range(_STATES)
_BEGIN, _DONE, _INSERT, _UPDATE, _DELETE, _TRUNCATE, _RELATION = b"BCIUDTR"
_ORIGIN, _TYPE, _MESSAGE = b"OYM"
_KEY_ONLY, _OLD, _NEW, _TEXT, _NOTHING, _KEPT = b"KONtnu"
_END_WHY, _RELATION_WHY, _UNKNOWN_WHY = int(StopReason.END), int(StopReason.RELATION), int(StopReason.UNKNOWN)


@compiled
def _scan(
    message_starts: Numbers,
    first: int,
    relations: KnownRelations,
    state: Numbers,
    found: Changes,
    count: int,
    fields: int,
) -> tuple[int, int, int, int]:
    """Where it stopped, how many changes and fields there are, and why it stopped."""
    # Unpacked here: an array that is taken out of its tuple for each message costs as much as the message.
    oids, columns, layouts, since = relations
    op, layout, first_field, first_old, commit, number, time, (buffer, starts, ends) = found
    for message in range(first, len(message_starts) - 1):
        at = message_starts[message] + WAL_HEADER_BYTES
        end = message_starts[message + 1]
        if end - at < _shortest(buffer[at]):
            return message, count, fields, _UNKNOWN_WHY
        kind = buffer[at]
        at += 1
        if kind == _BEGIN:
            state[_INSIDE] = 1
            state[_COMMIT] = _int64(buffer, at)
            state[_TIME] = _int64(buffer, at + 8)
            state[_NUMBER] = 0
        elif kind == _DONE:
            state[_INSIDE] = 0
            state[_END] = _int64(buffer, at + 9)
        elif kind == _INSERT or kind == _UPDATE or kind == _DELETE:
            known = _find(oids, _int32(buffer, at))
            if known < 0:
                return message, count, fields, _UNKNOWN_WHY
            if _is_wanted(state, layouts[known], since[known]):
                at += 4
                old = -1
                if buffer[at] != _NEW:
                    old = fields
                    at, fields = _tuple(buffer, at, end, columns[known], starts, ends, fields)
                    if at < 0:
                        return message, count, fields, _UNKNOWN_WHY
                new = old
                if kind != _DELETE:
                    new = fields
                    at, fields = _tuple(buffer, at, end, columns[known], starts, ends, fields)
                    if at < 0:
                        return message, count, fields, _UNKNOWN_WHY
                    if old >= 0:
                        _fill_in(starts, ends, new, old, columns[known])
                op[count] = 0 if kind == _INSERT else 1 if kind == _UPDATE else 2
                layout[count] = layouts[known]
                first_field[count] = new
                first_old[count] = old if kind == _UPDATE else -1
                count = _note(state, commit, number, time, count)
            state[_NUMBER] += 1
        elif kind == _TRUNCATE:
            if at + 5 + 4 * _int32(buffer, at) > end:
                return message, count, fields, _UNKNOWN_WHY
            for place in range(at + 5, at + 5 + 4 * _int32(buffer, at), 4):
                known = _find(oids, _int32(buffer, place))
                if known < 0:
                    return message, count, fields, _UNKNOWN_WHY
                if _is_wanted(state, layouts[known], since[known]):
                    op[count] = 3
                    layout[count] = layouts[known]
                    first_field[count] = -1
                    first_old[count] = -1
                    count = _note(state, commit, number, time, count)
                state[_NUMBER] += 1
        elif kind == _RELATION:
            return message, count, fields, _RELATION_WHY
        elif kind != _ORIGIN and kind != _TYPE and kind != _MESSAGE:
            return message, count, fields, _UNKNOWN_WHY
    return len(message_starts) - 1, count, fields, _END_WHY


@compiled
def _is_wanted(state: Numbers, layout: int, since: int) -> bool:
    commit = int(state[_COMMIT])
    if layout < 0 or commit < since or commit < state[_TAKEN_COMMIT]:
        return False
    return bool(commit != state[_TAKEN_COMMIT] or state[_NUMBER] > state[_TAKEN_NUMBER])


@compiled
def _note(state: Numbers, commit: Numbers, number: Numbers, time: Numbers, count: int) -> int:
    commit[count] = state[_COMMIT]
    number[count] = state[_NUMBER]
    time[count] = state[_TIME]
    return count + 1


@compiled
def _shortest(kind: int) -> int:
    """How long a message must be at least, so that its fixed part can be read."""
    if kind == _BEGIN:
        return 21
    if kind == _DONE:
        return 26
    if kind == _INSERT or kind == _UPDATE or kind == _DELETE:
        return 8
    return 6 if kind == _TRUNCATE else 1


@compiled
def _tuple(buffer: Bytes, at: int, end: int, columns: int, starts: Places, ends: Places, field: int) -> tuple[int, int]:
    """Note where the values of a row are: the index after it (-1: it is not as described), the next field."""
    kind = buffer[at] if at + 3 <= end else 0
    if kind == 0 or int(buffer[at + 1]) << 8 | int(buffer[at + 2]) != columns:
        return -1, field
    at += 3
    for _ in range(columns):
        value = buffer[at] if at < end else 0
        at += 1
        if value == _TEXT and at + 4 <= end:
            starts[field] = at + 4
            at += 4 + _int32(buffer, at)
            ends[field] = at
        elif value == _NOTHING:
            starts[field] = ABSENT if kind == _KEY_ONLY else NULL
        elif value == _KEPT:
            starts[field] = UNCHANGED
        else:
            return -1, field
        field += 1
    return (at if at <= end else -1), field


@compiled
def _fill_in(starts: Places, ends: Places, new: int, old: int, columns: int) -> None:
    """What the new row leaves out because it did not change is known if the old one came with it."""
    for column in range(columns):
        if starts[new + column] == UNCHANGED and starts[old + column] >= 0:
            starts[new + column] = starts[old + column]
            ends[new + column] = ends[old + column]


@compiled
def _find(oids: Numbers, oid: int) -> int:
    low = 0
    high = len(oids)
    while low < high:
        middle = (low + high) // 2
        if oids[middle] < oid:
            low = middle + 1
        else:
            high = middle
    return low if low < len(oids) and oids[low] == oid else -1


@compiled
def _int32(buffer: Bytes, at: int) -> int:
    """Unsigned: relation numbers are, and lengths are never negative."""
    return int(buffer[at]) << 24 | int(buffer[at + 1]) << 16 | int(buffer[at + 2]) << 8 | int(buffer[at + 3])


@compiled
def _int64(buffer: Bytes, at: int) -> int:
    return _int32(buffer, at) << 32 | _int32(buffer, at + 4)
