"""What Snowflake's errors mean: whether it refuses the rows themselves, or cannot load them now."""

from __future__ import annotations

from penstock.errors import PenstockError, RefusedError, TransientError


def as_penstock_error(error: Exception, refuses: bool = True) -> PenstockError:
    said = str(getattr(error, "msg", None) or error).strip().partition("\n")[0]
    message = f"Snowflake says: {said}"
    if refuses and _is_refusal(error):
        return RefusedError("PEN-DST-024", message, "Nothing of it was written.")
    return TransientError("PEN-DST-043", message, "The batch is tried again.")


def _is_refusal(error: Exception) -> bool:
    """Errors of values are in the classes 22 and 23 of SQL, and numbered from 100000 by Snowflake."""
    state, number = getattr(error, "sqlstate", None), getattr(error, "errno", None)
    return str(state or "")[:2] in ("22", "23") or (isinstance(number, int) and 100_000 <= number < 101_000)
