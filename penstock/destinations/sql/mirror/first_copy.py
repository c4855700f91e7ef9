"""Empties a table before the first copy that a route brings to it.

A mirror may outlive the log that filled it: the log was lost, and everything is copied into a new one. That log knows
nothing of rows which the source has deleted since, and nothing of the rows of tables without a key, which would double.
So a copy that is the first in its log says so, and rows that are in the table before it go.

They stay if they may be wanted: in a table that is meant for several sources, and if this route has written to the
table before, because then they came from another source by the same route.
"""

from __future__ import annotations

import numpy as np

from penstock.destinations.contract import Owner
from penstock.destinations.sql.load.attempt import BatchWrite
from penstock.destinations.sql.mirror.fit_values import MirrorFitting
from penstock.destinations.sql.mirror.fold_changes import Change
from penstock.destinations.sql.mirror.keyless_changes import KeylessRows
from penstock.destinations.sql.mirror.source_identity import check_source
from penstock.destinations.sql.mirror.stage.staged_changes import StagedStretch
from penstock.errors import RefusedError, TransientError


def empty_before_first_copy(write: BatchWrite, name: str, staged: StagedStretch) -> None:
    """Empty the table if these changes, the first of a batch, begin with a first copy.

    That is a transaction of its own, before anything notes that the route writes to the table: killed in between, the
    next attempt either empties it again or finds it empty.
    """
    session = write.session
    table = session.table(name)
    if table is None or not staged.begins_copy or not write.rules.one_source or _has_written(write, name):
        return
    check_source(name, staged.header.namespaces, session.comments(name).table)
    if not session.has_rows(name):
        return
    first = StagedStretch(staged.rows.slice(0, 1), staged.header)
    stretch = first.with_target_names({source: source for source in first.sources}, ())
    rows = KeylessRows(stretch, MirrorFitting(stretch.header, table, session.dialect))
    try:
        with session.open_mirror(write.attempt.keeps) as mirror:
            mirror.apply(rows.changes(np.array([Change.TRUNCATE], np.int8), 0, 1))
    except RefusedError as error:
        raise TransientError(
            "PEN-DST-118",
            f"the table '{name}' has rows from before its first copy, and cannot be emptied: {error.what}",
            "Empty it, or remove what keeps it from being emptied; the changes wait until then.",
        ) from error


def _has_written(write: BatchWrite, name: str) -> bool:
    """Whether this route, also under a former name or ledger, has brought changes to the table."""
    if name in write.book.filled_tables():
        return True
    selves = [Owner(write.batch.scope, write.batch.route), *write.book.former_selves()]
    marks = (mark for owner in selves for mark in write.session.marks(owner.scope, owner.route))
    return any(mark.table.partition("#")[0] == name for mark in marks)
