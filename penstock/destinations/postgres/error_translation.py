"""What PostgreSQL's errors mean: whether the rows, the table, or the moment is to blame."""

from __future__ import annotations

from enum import Enum, auto
from typing import NoReturn

import psycopg

from penstock.errors import PenstockError, RefusedError, RowTooLargeError, TableRefusedError, TransientError


class About(Enum):
    """What the failed statement was about, which tells what is to blame."""

    CONNECTION = auto()
    TABLE = auto()
    ROWS = auto()


def as_penstock_error(error: psycopg.Error, about: About = About.ROWS) -> PenstockError:
    """Whether the database refuses the rows themselves (a value, a constraint, a limit), refuses any row in this table
    as it is, or cannot load them now."""
    said = (error.diag.message_primary or str(error)).strip().partition("\n")[0]
    detail = error.diag.message_detail
    message = f"PostgreSQL says: {said}" + (f" ({detail})" if detail else "")
    state = error.sqlstate or ""
    if about is About.ROWS and isinstance(error, psycopg.errors.ProgramLimitExceeded) and "row is too big" in said:
        return RowTooLargeError("PEN-DST-024", message, "Fix the value or the table, then: penstock failed replay")
    if about is About.ROWS and (state[:2] in _REFUSALS or _is_policy(state, said)):
        return RefusedError("PEN-DST-024", message, "Fix the value or the table, then: penstock failed replay")
    if about is About.CONNECTION or not state or state[:2] in _PASSING or state in _PASSING_STATES:
        return TransientError("PEN-DST-027", message, "See that the server runs and can be reached: penstock doctor")
    return TableRefusedError("PEN-DST-093", message, "Fix the table, then: penstock failed replay")


def refuse_dropped_rows(given: int, kept: int) -> None:
    """Raise ``RefusedError`` if the database has dropped rows: nothing else would tell of them."""
    if kept < given:
        raise RefusedError(
            "PEN-DST-096",
            "PostgreSQL took the row and did not keep it: a trigger of the table drops it (it returns NULL).",
            "Let the trigger return the row, then: penstock failed replay",
        )


def refuse_prevented_delete() -> NoReturn:
    raise RefusedError(
        "PEN-DST-097",
        "PostgreSQL still has a row that was deleted: a trigger or a policy of the table keeps it.",
        "Nothing of it was written. Let the table's owner allow the delete, then: penstock failed replay",
    )


def _is_policy(state: str, said: str) -> bool:
    """A row that a policy refuses has the code of a missing permission; only the message tells them apart."""
    return state == "42501" and "row-level security policy" in said


_REFUSALS = ("22", "23", "38", "39", "44", "54", "P0")
"""Classes of errors that are about the rows: data, constraints, limits, and what the table's own triggers raise."""
_PASSING = ("08", "25", "28", "40", "53", "57", "58", "F0", "XX")
"""Classes of errors that pass by themselves: the connection, deadlocks, disk and memory, an operator, the server."""
_PASSING_STATES = ("42501", "55P03", "55006")
"""A missing permission, a lock that was not to be had, an object in use."""
