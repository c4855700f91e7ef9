"""Whether a table has ignored what was written to it: a trigger, a rule or a policy may, and the database says nothing.

What is compared is which rows are there, and how many rows a statement should change with how many it did. Values are
not: a trigger may change them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.destinations.state.store import source_rows
from penstock.destinations.state.store.diff_statements import DiffStatements
from penstock.destinations.state.store.fit_state import StateTable
from penstock.destinations.state.store.state_connection import Answer, StateConnection, Statement, Value
from penstock.errors import RefusedError, TableRefusedError


@dataclass(frozen=True)
class DifferenceChecks:
    """What is asked around the statements that write differences; nothing, if the table ignores no rows."""

    table: str
    before: Sequence[Statement] = ()
    after: Sequence[Statement] = ()

    def check(self, before: Sequence[Answer], updated: int, after: Sequence[Answer]) -> None:
        """Raises ``RefusedError`` if rows were ignored, as the answers say and how many rows were updated."""
        due = sum(int(str(count)) for answer in before for (count,) in answer.rows)
        if updated < due or any(answer.rows for answer in after):
            raise ignored(self.table)


def difference_checks(
    found: StateTable, statements: DiffStatements, prunes: bool, given: Mapping[str, Value]
) -> DifferenceChecks:
    if not found.guarded:
        return DifferenceChecks(found.name)
    # Of rows that are deleted first none is updated: so this may be asked before both.
    due = statements.count_differing()
    before = [Statement(due, given)] if due is not None else []
    return DifferenceChecks(found.name, before, [Statement(statements.select_ignored(prunes), given)])


def find_kept(connection: StateConnection, found: StateTable, sources: Sequence[str]) -> str | None:
    """One of the sources that has rows in a table still, after all of them were deleted."""
    if not found.guarded:
        return None
    answers = connection.ask(*(source_rows.select_any(connection.dialect, found, source) for source in sources))
    return next((source for source, answer in zip(sources, answers, strict=True) if answer.rows), None)


def check_deleted(connection: StateConnection, tables: Sequence[StateTable], source: str) -> None:
    """Raises ``TableRefusedError`` if one of the tables has kept rows of a source that were deleted."""
    for found in tables:
        if find_kept(connection, found, [source]) is not None:
            raise TableRefusedError(
                "PEN-DST-148",
                f"the table '{found.name}' keeps rows of source '{source}' that were deleted: a trigger, a rule or a"
                " policy of it does. So nothing of the source was deleted from the database.",
                "Let the table's owner allow it. A silent source is tried again by itself; to forget one, run again:"
                " penstock conflate forget",
            )


def ignored(table: str) -> RefusedError:
    return RefusedError(
        "PEN-DST-145",
        f"the table '{table}' ignores rows: a trigger, a rule or a policy of it keeps one from being inserted, updated"
        " or deleted. Nothing of the bundle was written.",
        "Let the table's owner allow it; the bundle is tried again.",
    )
