"""The changes of one table of a batch into one engine, each exactly once, in the order of the log.

All of them are folded and applied at once. If the engine refuses that, they are applied piece by piece, each on top of
what came before it, and a refused piece in smaller ones, until the changes are found that it refuses. Those fail with
its own message, and all others have the effect that they would have had one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.destinations.contract import Batch, Part, TableBook, TableReceipt
from penstock.destinations.sql.config import OnTypeConflict
from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.load.loader import failures_together, from_text, merged_in, to_text
from penstock.destinations.sql.mirror.applier import Mirror
from penstock.destinations.sql.mirror.fit_values import MirrorFitting
from penstock.destinations.sql.mirror.fold_changes import Change, Kinds, puts
from penstock.destinations.sql.mirror.keyed_changes import KeyedRows
from penstock.destinations.sql.mirror.keyless_changes import KeylessRows
from penstock.destinations.sql.mirror.mirror_marks import Applied, mark_name
from penstock.destinations.sql.mirror.mirror_patch import needed
from penstock.destinations.sql.mirror.screening import Failures, lost_by, screened
from penstock.destinations.sql.mirror.source_identity import check_source, remarks, settled_columns, unable_to_empty
from penstock.destinations.sql.mirror.stage.mirror_names import column_names
from penstock.destinations.sql.mirror.stage.staged_changes import Staged, Stretch, stretches
from penstock.destinations.sql.schema.table_changes import Operation, Table
from penstock.destinations.sql.schema.table_patch import TableRules, brought
from penstock.destinations.sql.session import Comments, Mark, Session, known_load
from penstock.errors import RefusedError, TransientError
from penstock.json.paths import format_path
from penstock.outcome import FAILURE_SCHEMA, NO_FAILURES

PIECES = 16
"""Into how many changes are cut that were refused together. A refusal costs more than a piece that is taken, and the
more pieces there are, the fewer refusals it takes to find a change."""


def mirror_table(
    session: Session, rules: TableRules, batch: Batch, name: str, parts: Sequence[Part], book: TableBook
) -> TableReceipt:
    """Apply the parts of one table, unless the engine has them. Failures and rows add up to the rows of the parts, and
    to what the engine had of records that are no longer in them."""
    marks = list(_there(session, batch, name))
    before, left = len(marks), _left(parts, batch, [mark.failures for mark in marks])
    for number, staged in enumerate(left):
        mark = Mark(batch, mark_name(name, before + number), len(staged))
        behind = left[number + 1].first if number + 1 < len(left) else None
        place = Applied(before + len(left), staged.last if behind != staged.last else None)
        marks.append(_applied(session, rules, mark, name, staged, book, place))
    failures = [failed for mark in marks if (failed := from_text(mark.failures)) is not None]
    return TableReceipt(
        name,
        sum(mark.rows for mark in marks),
        failures_together(failures) if failures else None,
        repeated=not left,
        resumed=bool(before and left),
        merged=sum(merged_in(mark.failures) for mark in marks),
    )


def _there(session: Session, batch: Batch, name: str) -> Iterator[Mark]:
    """The marks of the stretches that the table has, in order."""
    for number in itertools.count():
        known = known_load(session, batch, mark_name(name, number))
        if known is None:
            return
        yield known
        told = Applied.told(known.failures)
        if told is not None and number + 1 >= told.stretches:
            return


def _left(parts: Sequence[Part], batch: Batch, there: Sequence[str]) -> list[Staged]:
    """What is still to be applied behind the stretches that are there. Records may have been declared done since, and
    stretches have grown together for that, so it is the place in the log that tells."""
    told = Applied.told(there[-1]) if there else None
    if told is None or told.last is None:
        return stretches(parts, batch.order)[len(there) :]
    return [] if len(there) >= told.stretches else stretches(parts, batch.order, told.last)


def schema_changes(
    dialect: Dialect, rules: TableRules, name: str, staged: Staged, table: Table | None, comments: Comments
) -> list[Operation]:
    """What the changes ask of the table as it is. Those that only take rows away ask nothing."""
    stretch = _by_our_names(staged, dialect, rules, table, comments)
    if not puts(stretch.change).any():
        return []

    def losing(after: Table) -> Sequence[str]:
        return list(lost_by(stretch, MirrorFitting(stretch.header, after, dialect)))

    operations = needed(dialect, rules, name, stretch.header, losing, table)
    return [*operations, *remarks(name, stretch.header, operations, comments.table)]


def _by_our_names(
    staged: Staged, dialect: Dialect, rules: TableRules, table: Table | None, comments: Comments
) -> Stretch:
    names = column_names(staged.sources, dialect.max_name, settled_columns(table, comments))
    return staged.named(names, rules.primary_key)


def _applied(
    session: Session, rules: TableRules, mark: Mark, name: str, staged: Staged, book: TableBook, place: Applied
) -> Mark:
    """Apply changes; ``mark`` is what it would be if nothing failed."""

    def plan(table: Table | None, unwidened: frozenset[str], frozen: bool) -> list[Operation]:
        kept = rules.keeping(unwidened, frozen)
        return schema_changes(session.dialect, kept, name, staged, table, session.comments(name))

    before = session.comments(name)
    if rules.one_source:
        check_source(name, staged.header.namespaces, before.table)
    _make_way(session, rules, name, staged, before)
    table = brought(session, name, plan, book)
    now = session.comments(name)
    stretch = _by_our_names(staged, session.dialect, rules, table, now)
    if table is None:
        return _marked(mark, stretch, _without_table(stretch), len(stretch), place)
    fitting = MirrorFitting(stretch.header, table, session.dialect)
    book.filled(name, {column.name: (format_path([column.source]),) for column in stretch.header.columns})
    failures = dict(screened(stretch, fitting, rules.on_type_conflict is OnTypeConflict.FAIL))
    failures |= unable_to_empty(stretch, now.table)
    with session.mirroring() as mirror:
        rows: KeyedRows | KeylessRows = KeylessRows(stretch, fitting)
        # Where no change has the key they have all failed, but for those that empty the table.
        if stretch.header.key and set(stretch.header.key) <= fitting.columns.keys():
            rows = KeyedRows(stretch, fitting, mirror.whole_rows)
        change = stretch.change.copy()
        change[list(failures)] = Change.NOTHING
        search = _Search(mirror, rows, change)
        failures |= search.settle()
        mark = _marked(mark, stretch, failures, sum(search.written), place)
        mirror.note(mark)
    return mark


def _make_way(session: Session, rules: TableRules, name: str, staged: Staged, comments: Comments) -> None:
    """See to it that no row is in the way of a key whose columns the table does not have yet.

    A table that is emptied for that stays empty if we are killed before the rest: its mark is still to come, and all of
    the stretch, which begins with a truncate, comes again.
    """
    table = session.table(name)
    if table is None:
        return
    stretch = _by_our_names(staged, session.dialect, rules, table, comments)
    new = [column for column in stretch.header.key if column not in table.columns]
    if not new or not puts(stretch.change).any() or not session.has_rows(name):
        return
    if stretch.change[0] != Change.TRUNCATE or 0 in unable_to_empty(stretch, comments.table):
        raise TransientError(
            "PEN-DST-091",
            f"the key of the table '{name}' has a new column, {', '.join(new)}, and rows that are there have no value"
            " for it.",
            "Empty the table and have all rows sent anew, or add the column and fill it; it is tried again.",
        )
    with session.mirroring() as mirror:
        first = KeylessRows(stretch, MirrorFitting(stretch.header, table, session.dialect))
        mirror.apply(first.changes(stretch.change, 0, 1), None)


@dataclass(frozen=True)
class _Search:
    """Applies changes to a table, and finds those that it refuses."""

    mirror: Mirror
    rows: KeyedRows | KeylessRows
    change: Kinds
    """What each change does. Those that failed do nothing."""
    written: list[int] = field(default_factory=list)
    """How many rows each piece took out or put in: the changes of one key are one."""

    def settle(self) -> Failures:
        found: dict[int, tuple[str, str]] = {}
        waiting = [(0, len(self.change))]
        while waiting:
            start, end = waiting.pop()
            if (self.change[start:end] == Change.NOTHING).all():
                continue
            try:
                before = partial(self.rows.changes, self.change, 0, start) if start else None
                changes = self.rows.changes(self.change, start, end)
                self.mirror.apply(changes, before)
                self.written.append(changes.count + changes.gone.num_rows + changes.truncates)
            except RefusedError as error:
                if end - start == 1:
                    found[start] = ("refused", error.what)
                    self.change[start] = Change.NOTHING
                else:
                    cuts = np.unique(np.linspace(start, end, PIECES + 1, dtype=np.int64)).tolist()
                    waiting += reversed(list(pairwise(cuts)))
        return found


def _without_table(stretch: Stretch) -> Failures:
    """What fails if there is no table and there can be none: rows without their key, or without any value."""
    key = f"there is no value for the key ({', '.join(stretch.header.key)})"
    reason = ("no_key", key) if stretch.header.key else ("no_value", "nothing but NULL is known of its columns")
    return dict.fromkeys(np.flatnonzero(puts(stretch.change)).tolist(), reason)


def _marked(mark: Mark, stretch: Stretch, failures: Failures, written: int, place: Applied) -> Mark:
    failed = _named(stretch, failures)
    taken = len(stretch) - failed.num_rows
    # A row that moves to another key is taken out and put in: more is written than came.
    said = to_text(failed, max(0, taken - written), batch=mark.batch, more=place.to_members())
    return Mark(mark.batch, mark.table, taken, said)


def _named(stretch: Stretch, failures: Mapping[int, tuple[str, str]]) -> pa.RecordBatch:
    if not failures:
        return NO_FAILURES
    places = stretch.places.take(pa.array(list(failures), pa.int64())).combine_chunks()
    codes, messages = zip(*failures.values(), strict=True)
    columns = [*places.columns, pa.array(codes, pa.string()), pa.array(messages, pa.string())]
    return pa.table(columns, schema=FAILURE_SCHEMA).combine_chunks().to_batches()[0]
