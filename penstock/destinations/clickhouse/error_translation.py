"""What ClickHouse's errors mean: whether it refuses the rows themselves, or cannot load them now."""

from __future__ import annotations

from penstock.errors import PenstockError, RefusedError, TransientError

_REFUSALS = frozenset(
    {
        6,  # text that cannot be read
        26,  # a quoted string
        27,  # input of another form
        38,  # a date
        41,  # a time
        69,  # out of bounds
        70,  # a value that cannot be converted
        72,  # a number
        117,  # data that is not right
        131,  # too long for FixedString
        321,  # outside of the type
        349,  # NULL where none may be
        376,  # a UUID
        407,  # a decimal that is too large
        441,  # a domain value
        467,  # a boolean
        469,  # a constraint
        675,  # an IPv4 address
        676,  # an IPv6 address
        691,  # not a word of the enumeration
    }
)
_NO_TABLE = 60


def as_penstock_error(error: Exception, refuses: bool = True) -> PenstockError:
    said = str(error).strip().partition("\n")[0].removeprefix(f"Code: {_code(error)}. DB::Exception: ")
    message = f"ClickHouse says: {said}"
    if refuses and _code(error) in _REFUSALS:
        return RefusedError("PEN-DST-024", message, "Fix the value or the table, then: penstock failed replay")
    return TransientError("PEN-DST-041", message, "See that the server runs and can be reached: penstock doctor")


def is_no_table(error: Exception) -> bool:
    return _code(error) == _NO_TABLE


def _code(error: Exception) -> int | None:
    code = getattr(error, "code", None)
    return code if isinstance(code, int) else None
