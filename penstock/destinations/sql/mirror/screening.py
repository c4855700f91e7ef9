"""Finds changes that can never be applied: they fail before any other change is applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.sql.mirror.fit_values import MirrorFitting, unplaced_message
from penstock.destinations.sql.mirror.fold_changes import Bools, Change, is_put
from penstock.destinations.sql.mirror.keyless_changes import KeylessRows
from penstock.destinations.sql.mirror.stage.change_stager import NULL_TEXT
from penstock.destinations.sql.mirror.stage.staged_changes import Stretch
from penstock.flatten.unmapped.unmapped_column import UNMAPPED

Failures = Mapping[int, tuple[str, str]]
"""Changes that fail, by number, each with a code and a message."""


@dataclass
class Screen:
    """Which changes of a stretch fail, each with the code and the message of the first reason."""

    stretch: Stretch
    failures: dict[int, tuple[str, str]] = field(default_factory=dict)

    def fail(self, chosen: Bools, code: str, message: str) -> None:
        for number in np.flatnonzero(chosen).tolist():
            self.failures.setdefault(number, (code, message))


def failing_changes(stretch: Stretch, fitting: MirrorFitting, conflicts_fail: bool) -> Failures:
    """The changes that fail, by number."""
    screen = Screen(stretch)
    about_rows = is_put(stretch.change) | (stretch.change == Change.DELETE)
    for name in stretch.header.key:
        _screen_key(screen, fitting, name, about_rows)
    if not stretch.header.key:
        nameless = (stretch.change == Change.UPDATE) & ~KeylessRows(stretch, fitting).has_old
        screen.fail(nameless, "no_key", "the table has no key, and the change does not say which row it was made to")
    spare = UNMAPPED in fitting.table.columns
    for name, lost in unplaced_values(stretch, fitting).items():
        if not spare or (conflicts_fail and name in fitting.columns):
            column = next(column for column in fitting.header.columns if column.name == name)
            screen.fail(lost & is_put(stretch.change), "type_conflict", unplaced_message(column, fitting.table))
    return screen.failures


def unplaced_values(stretch: Stretch, fitting: MirrorFitting) -> Mapping[str, Bools]:
    """The changes, by column, whose value has no place: the column cannot hold it, or does not exist."""
    found: dict[str, Bools] = {}
    for name, column in fitting.columns.items():
        if column.doubtful:
            lost = [column.fit(chunk).lost for chunk in stretch.carried[name].chunks]
            if any(each is not None for each in lost):
                found[name] = _flags(lost, stretch.carried[name])
    for homeless in fitting.missing_columns:
        carried = pc.fill_null(pc.not_equal(stretch.carried[homeless.name], NULL_TEXT), False)
        if pc.any(carried).as_py():
            found[homeless.name] = carried.to_numpy()
    return found


def _screen_key(screen: Screen, fitting: MirrorFitting, name: str, about_rows: Bools) -> None:
    stretch = screen.stretch
    message = f"there is no value for the key column '{name}'"
    if name not in fitting.columns:
        screen.fail(about_rows, "no_key", message if name in fitting.table.columns else f"there is no column '{name}'")
        return
    missing = pc.fill_null(pc.equal(stretch.carried[name], NULL_TEXT), True).to_numpy()
    screen.fail(about_rows & missing, "no_key", message)
    old = stretch.old(name)
    given = [other for key in stretch.header.key if (other := stretch.old(key)) is not None]
    if given:
        moved = np.logical_or.reduce([other.is_valid().to_numpy() for other in given])
        unknown = moved if old is None else moved & pc.fill_null(pc.equal(old, NULL_TEXT), True).to_numpy()
        screen.fail(about_rows & unknown, "no_key", f"there is no old value for the key column '{name}'")
    column = fitting.columns[name]
    for values in (stretch.carried[name], old):
        if values is not None and column.doubtful:
            lost = _flags([column.fit(chunk).lost for chunk in values.chunks], values)
            declared = next(each for each in fitting.header.columns if each.name == name)
            screen.fail(about_rows & lost, "type_conflict", unplaced_message(declared, fitting.table))


def _flags(lost: list[pa.BooleanArray | None], values: pa.ChunkedArray) -> Bools:
    """One flag per value, from those of each chunk."""
    flags = [
        np.zeros(len(chunk), np.bool_) if each is None else each.to_numpy(zero_copy_only=False)
        for each, chunk in zip(lost, values.chunks, strict=True)
    ]
    return np.concatenate(flags) if flags else np.zeros(0, np.bool_)
