"""Applies the changes of one table of a batch to one engine, each exactly once, in the order of the log.

All of them are folded and applied at once. If the engine refuses that, they are applied piece by piece, each on top of
what came before it, and a refused piece in smaller ones, until the refused changes are found. Those fail with the
engine's own message, and all others have the same effect as if they were applied one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.destinations.contract import Batch, Part, TableReceipt
from penstock.destinations.sql.config import OnTypeConflict
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.attempt import Attempt, BatchWrite
from penstock.destinations.sql.marks import Mark, failures_in, mark_text, merged_in
from penstock.destinations.sql.mirror.applier import MirrorTransaction, RowsNotFound
from penstock.destinations.sql.mirror.first_copy import empty_before_first_copy
from penstock.destinations.sql.mirror.fit_values import MirrorFitting
from penstock.destinations.sql.mirror.fold_changes import Change, Kinds, is_put
from penstock.destinations.sql.mirror.keyed_changes import KeyedRows
from penstock.destinations.sql.mirror.keyless_changes import KeylessRows
from penstock.destinations.sql.mirror.mirror_marks import Progress, mark_name
from penstock.destinations.sql.mirror.mirror_patch import plan_mirror_changes
from penstock.destinations.sql.mirror.screening import Failures, failing_changes, unplaced_values
from penstock.destinations.sql.mirror.source_identity import bad_truncates, check_source, known_columns, mirror_comments
from penstock.destinations.sql.mirror.stage.mirror_names import column_names
from penstock.destinations.sql.mirror.stage.staged_changes import StagedStretch, Stretch, stretches
from penstock.destinations.sql.schema.alter_table import TableRules, ensure_table
from penstock.destinations.sql.schema.schema_operations import Operation, Table
from penstock.destinations.sql.session import Comments, Session, known_load
from penstock.errors import ContradictionError, RefusedError, TransientError
from penstock.json.paths import format_path
from penstock.outcome import FAILURE_SCHEMA, NO_FAILURES, concat_failures

PIECES = 16
"""Into how many pieces refused changes are cut. A refusal costs more than an accepted piece, and with more pieces it
takes fewer refusals to find a change."""


def mirror_table(write: BatchWrite, name: str, parts: Sequence[Part]) -> TableReceipt:
    """Apply the parts of one table, unless the engine has them. Failures and rows add up to the rows of the parts, plus
    what the engine already had of records that the parts no longer hold."""
    marks = list(_applied_marks(write.session, write.batch, name))
    before, left = len(marks), _remaining_stretches(parts, write.batch, [mark.failures for mark in marks])
    if not before and left:
        empty_before_first_copy(write, name, left[0])
    for number, staged in enumerate(left):
        mark = Mark(write.batch, mark_name(name, before + number), len(staged))
        behind = left[number + 1].first if number + 1 < len(left) else None
        place = Progress(before + len(left), staged.last if behind != staged.last else None)
        marks.append(_apply_stretch(write, mark, name, staged, place))
    failures = [failed for mark in marks if (failed := failures_in(mark.failures)) is not None]
    return TableReceipt(
        name,
        sum(mark.rows for mark in marks),
        concat_failures(failures) if failures else None,
        repeated=not left,
        resumed=bool(before and left),
        merged=sum(merged_in(mark.failures) for mark in marks),
    )


def _applied_marks(session: Session, batch: Batch, name: str) -> Iterator[Mark]:
    """The marks of the stretches that the table has, in order."""
    for number in itertools.count():
        known = known_load(session, batch, mark_name(name, number))
        if known is None:
            return
        yield known
        progress = Progress.from_mark(known.failures)
        if progress is not None and number + 1 >= progress.stretches:
            return


def _remaining_stretches(parts: Sequence[Part], batch: Batch, there: Sequence[str]) -> list[StagedStretch]:
    """What is still to be applied after the stretches that are there. Records may have been acknowledged since, which
    can join stretches, so the place in the log decides."""
    progress = Progress.from_mark(there[-1]) if there else None
    if progress is None or progress.last is None:
        return stretches(parts, batch.order)[len(there) :]
    return [] if len(there) >= progress.stretches else stretches(parts, batch.order, progress.last)


def plan_stretch_changes(
    dialect: Dialect, rules: TableRules, name: str, staged: StagedStretch, table: Table | None, comments: Comments
) -> list[Operation]:
    """The schema changes that the stretch needs, given the table as it is. Changes that only remove rows need none."""
    stretch = _by_our_names(staged, dialect, rules, table, comments)
    if not is_put(stretch.change).any():
        return []

    def losing(after: Table) -> Sequence[str]:
        return list(unplaced_values(stretch, MirrorFitting(stretch.header, after, dialect)))

    operations = plan_mirror_changes(dialect, rules, name, stretch.header, losing, table)
    return [*operations, *mirror_comments(name, stretch.header, operations, comments.table)]


def _by_our_names(
    staged: StagedStretch, dialect: Dialect, rules: TableRules, table: Table | None, comments: Comments
) -> Stretch:
    names = column_names(staged.sources, dialect.max_name, known_columns(table, comments))
    return staged.with_target_names(names, rules.primary_key)


def _apply_stretch(write: BatchWrite, mark: Mark, name: str, staged: StagedStretch, place: Progress) -> Mark:
    """Apply changes and return their mark; ``mark`` is the mark if nothing fails."""
    session, rules = write.session, write.rules

    def plan(table: Table | None, unwidened: frozenset[str], frozen: bool) -> list[Operation]:
        kept = rules.with_limits(unwidened, frozen)
        return plan_stretch_changes(session.dialect, kept, name, staged, table, session.comments(name))

    before = session.comments(name)
    if rules.one_source:
        check_source(name, staged.header.namespaces, before.table)
    _require_source_key(write, name, staged, before)
    _require_former_table(write, name, staged)
    _make_room_for_key(write, name, staged, before)
    table = ensure_table(session, name, plan, write.book)
    now = session.comments(name)
    stretch = _by_our_names(staged, session.dialect, rules, table, now)
    if table is None:
        mark = _final_mark(mark, stretch, _failures_without_table(stretch), len(stretch), place, write.attempt)
        with session.open_mirror(write.attempt.keeps) as mirror:
            mirror.write_mark(mark)
        return mark
    fitting = MirrorFitting(stretch.header, table, session.dialect)
    write.book.note_paths(name, {column.name: (format_path([column.source]),) for column in stretch.header.columns})
    failures = dict(failing_changes(stretch, fitting, rules.on_type_conflict is OnTypeConflict.FAIL))
    failures |= bad_truncates(stretch, now.table)
    with session.open_mirror(write.attempt.keeps) as mirror:
        rows: KeyedRows | KeylessRows = KeylessRows(stretch, fitting)
        # If no change has the key, all of them have failed except truncates.
        if stretch.header.key and set(stretch.header.key) <= fitting.columns.keys():
            rows = KeyedRows(stretch, fitting, mirror.whole_rows)
        change = stretch.change.copy()
        change[list(failures)] = Change.NOTHING
        search = _RefusalSearch(mirror, rows, change, write.attempt)
        failures |= search.apply_all()
        written = sum(search.written) + stretch.beginnings
        mark = _final_mark(mark, stretch, failures, written, place, write.attempt)
        mirror.write_mark(mark)
    return mark


def _require_source_key(write: BatchWrite, name: str, staged: StagedStretch, comments: Comments) -> None:
    """Raises if the key of the config is known not to be the source's: a change of it does not say which row it was
    made to, and the old row would stay. A column that the source does not declare may be its key by another name."""
    theirs, ours = staged.header.key, write.rules.primary_key
    if not theirs or not ours:
        return
    stretch = _by_our_names(staged, write.session.dialect, write.rules, write.session.table(name), comments)
    declared = [column for column in stretch.header.columns if column.name in ours and column.declared is not None]
    others = [column.name for column in declared if column.source not in theirs]
    if others:
        raise TransientError(
            "PEN-DST-098",
            f"`primary_key` names {', '.join(others)}, and the source tells rows of '{name}' apart by"
            f" {', '.join(theirs)}: a row whose {others[0]} changes would stay beside the new one.",
            "Leave `primary_key` out, or name the columns that the source's key has here; the changes wait until then.",
        )


def _require_former_table(write: BatchWrite, name: str, staged: StagedStretch) -> None:
    """Raises ``ContradictionError`` if the table was filled before and does not exist: made again from these changes it
    would lack all rows that they do not touch. After a truncate it has none."""
    if write.session.table(name) is not None or (staged.change == Change.TRUNCATE).any():
        return
    if name in write.book.filled_tables():
        raise ContradictionError(
            "PEN-DST-116",
            f"the table '{name}' had rows and does not exist any more: it was dropped or renamed. Nothing was written.",
            "Put it back, or see how to go on without: penstock doctor",
        )


def _make_room_for_key(write: BatchWrite, name: str, staged: StagedStretch, comments: Comments) -> None:
    """Make sure that no row prevents a key whose columns the table does not have yet.

    A table that is emptied for that stays empty if we are killed before the rest: its mark is not written yet, so the
    whole stretch, which begins with a truncate, is applied again.
    """
    session = write.session
    table = session.table(name)
    if table is None:
        return
    stretch = _by_our_names(staged, session.dialect, write.rules, table, comments)
    new = [column for column in stretch.header.key if column not in table.columns]
    if not new or not is_put(stretch.change).any() or not session.has_rows(name):
        return
    if stretch.change[0] != Change.TRUNCATE or 0 in bad_truncates(stretch, comments.table):
        raise TransientError(
            "PEN-DST-091",
            f"the key of the table '{name}' has a new column, {', '.join(new)}, and rows that are there have no value"
            " for it.",
            "Empty the table and have all rows sent again, or add the column and fill it; it is tried again.",
        )
    with session.open_mirror(write.attempt.keeps) as mirror:
        first = KeylessRows(stretch, MirrorFitting(stretch.header, table, session.dialect))
        mirror.apply(first.changes(stretch.change, 0, 1))


@dataclass(frozen=True)
class _RefusalSearch:
    """Applies changes to a table, and finds those that the engine refuses."""

    mirror: MirrorTransaction
    rows: KeyedRows | KeylessRows
    change: Kinds
    """What each change does. Those that failed do nothing."""
    attempt: Attempt
    written: list[int] = field(default_factory=list)
    """How many rows each piece deleted or put; the changes of one key count as one."""

    def apply_all(self) -> Failures:
        found: dict[int, tuple[str, str]] = {}
        waiting = [(0, len(self.change))]
        while waiting:
            start, end = waiting.pop()
            if (self.change[start:end] == Change.NOTHING).all():
                continue
            try:
                changes = self.rows.changes(self.change, start, end)
                self.mirror.apply(changes)
                self.written.append(changes.count + changes.gone.num_rows + changes.truncates)
            except RefusedError as error:
                self.attempt.check_refusal(error)
                if start and self.mirror.starts_over:
                    self.mirror.apply(self.rows.changes(self.change, 0, start))
                if isinstance(error, RowsNotFound) and isinstance(self.rows, KeylessRows):
                    for number in self.rows.without_row(self.change, start, end, error.lacking):
                        found[number] = ("no_row", error.what)
                        self.change[number] = Change.NOTHING
                    waiting.append((start, end))
                elif end - start == 1:
                    found[start] = ("refused", error.what)
                    self.change[start] = Change.NOTHING
                else:
                    cuts = np.unique(np.linspace(start, end, PIECES + 1, dtype=np.int64)).tolist()
                    waiting += reversed(list(pairwise(cuts)))
        return found


def _failures_without_table(stretch: Stretch) -> Failures:
    """The failures if no table exists and none can be made: rows without their key, or without any value."""
    key = f"there is no value for the key ({', '.join(stretch.header.key)})"
    reason = ("no_key", key) if stretch.header.key else ("no_value", "nothing but NULL is known of its columns")
    return dict.fromkeys(np.flatnonzero(is_put(stretch.change)).tolist(), reason)


def _final_mark(
    mark: Mark, stretch: Stretch, failures: Failures, written: int, place: Progress, attempt: Attempt
) -> Mark:
    failed = _named_failures(stretch, failures)
    attempt.check_failures(failed)
    taken = len(stretch) - failed.num_rows
    # A row that moves to another key is deleted and put: more is written than came.
    said = mark_text(failed, max(0, taken - written), batch=mark.batch, more=place.to_members())
    return Mark(mark.batch, mark.table, taken, said)


def _named_failures(stretch: Stretch, failures: Mapping[int, tuple[str, str]]) -> pa.RecordBatch:
    if not failures:
        return NO_FAILURES
    places = stretch.places.take(pa.array(list(failures), pa.int64())).combine_chunks()
    codes, messages = zip(*failures.values(), strict=True)
    columns = [*places.columns, pa.array(codes, pa.string()), pa.array(messages, pa.string())]
    return pa.table(columns, schema=FAILURE_SCHEMA).combine_chunks().to_batches()[0]
