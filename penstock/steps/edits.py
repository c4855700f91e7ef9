"""A batch of JSON objects on its way through several edits, with the rows that failed on the way.

Every edit returns a new state. A row that is not a JSON object, or that an edit fails on, is out: later edits skip it
and ``outcome`` lists it among the failures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.json.arrow_text import verbatim_values
from penstock.json.edit import put, wrap_values
from penstock.json.find import Found, find
from penstock.json.members import Rewritten, drop_members, rename_members
from penstock.json.merge import merge_objects
from penstock.json.paths import Path, format_path
from penstock.json.tokens import ABSENT, OBJECT
from penstock.outcome import Outcome
from penstock.steps.outcomes import PATH_BLOCKED, Flags, failures, not_json, settle, with_data


@dataclass(frozen=True)
class Editing:
    """``alive`` rows hold a JSON object in ``data``; every other row is in ``failed``."""

    batch: pa.RecordBatch
    data: pa.BinaryArray
    alive: Flags
    failed: tuple[pa.RecordBatch, ...] = ()

    @classmethod
    def begin(cls, batch: pa.RecordBatch, data: pa.BinaryArray, checked: Found | Rewritten) -> Editing:
        """The batch with its data, or what a first edit made of it; ``checked`` says which rows are JSON objects."""
        if checked.valid.all():
            return cls(batch, data, checked.valid)
        return cls(batch, data, checked.valid, (not_json(batch, checked.valid, checked.broken_at),))

    def without(self, path: Path) -> Editing:
        return replace(self, data=drop_members(self.data, [path]).data)

    def put(self, path: Path, values: pa.BinaryArray, found: Found | None = None) -> Editing:
        """Put JSON values at a path, where they are not null; ``found`` as in ``json.edit.put``."""
        result = put(self.data, path, values, found)
        blocked = np.flatnonzero((result.blocked_at >= 0) & self.alive)
        if len(blocked) == 0:
            return replace(self, data=result.data)
        messages = [
            f"nothing can be put at {format_path(path)}: what is at {format_path(path[:depth])} is not an object"
            for depth in result.blocked_at[blocked].tolist()
        ]
        return self._fail(blocked, messages, result.data)

    def moved(self, source: Path, target: Path, merge: bool) -> Editing:
        """Move the value at ``source`` to ``target``; rows that have none stay as they are.

        It replaces what was at ``target``; with ``merge`` an object is merged into an object there instead. ``()`` is
        the document: as the source, all of it is nested; as the target, an object's members spread into it.
        """
        found = find(self.data, [source, target])
        there = found.kind[:, 0] != ABSENT
        if source == target or not there.any():
            return self
        values = verbatim_values(found, 0)
        if source == ():
            return replace(self, data=wrap_values(values, target))
        beside = source[:-1] == target[:-1] and len(source) == len(target)
        meeting = (found.kind[:, 0] == OBJECT) & (found.kind[:, 1] == OBJECT) & merge
        if beside and not meeting.any():
            return replace(self, data=rename_members(self.data, {source: target[-1]}).data)
        state = self
        if target == ():
            misfits = np.flatnonzero(there & (found.kind[:, 0] != OBJECT) & self.alive)
            message = f"{format_path(source)} is not an object: it cannot be spread into the record"
            state = state._fail(misfits, [message] * len(misfits), state.data)
            values = pc.if_else(pa.array(found.kind[:, 0] == OBJECT), values, pa.scalar(None, pa.binary()))
        state = state.without(source)
        result = state._merged_onto(target, values) if merge else state.put(target, values)
        if beside:
            # Without a merge the member keeps its position among its neighbours.
            in_place = rename_members(self.data, {source: target[-1]}).data
            return replace(result, data=pc.if_else(pa.array(meeting), result.data, in_place))
        return result

    def outcome(self) -> Outcome:
        return settle(with_data(self.batch, self.data), self.alive, self.failed)

    def _merged_onto(self, target: Path, values: pa.BinaryArray) -> Editing:
        found = find(self.data, [target])
        meeting = np.flatnonzero((found.kind[:, 0] == OBJECT) & _are_objects(values))
        if len(meeting):
            # Row by row: which members meet is known only from both objects' own bytes, and such moves are rare.
            olds = verbatim_values(found, 0)
            texts = values.to_pylist()
            for row in meeting.tolist():
                texts[row] = merge_objects(olds[row].as_py(), texts[row])
            values = pa.array(texts, pa.binary())
        return self.put(target, values)

    def _fail(self, rows: npt.NDArray[np.int64], messages: list[str], data: pa.BinaryArray) -> Editing:
        alive = self.alive.copy()
        alive[rows] = False
        named = failures(self.batch, rows, PATH_BLOCKED, messages)
        return Editing(self.batch, data, alive, (*self.failed, named))


def _are_objects(values: pa.BinaryArray) -> Flags:
    hits: Flags = pc.fill_null(pc.starts_with(values, b"{"), False).to_numpy(zero_copy_only=False)
    return hits
