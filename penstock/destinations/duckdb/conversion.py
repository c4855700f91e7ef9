"""Values into columns of another type, as SQL expressions: what fits without loss is converted, the rest told apart.

"Without loss" means that the value could be had back: ``'7'`` and ``9.0`` fit a bigint, ``'007'`` and ``9.5`` do not,
``1`` fits a boolean and ``2`` does not. Anything fits text.
"""

from __future__ import annotations

from dataclasses import dataclass

TEXT = "VARCHAR"
TIME = "TIMESTAMP WITH TIME ZONE"

_NUMBERS = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "HUGEINT", "UBIGINT", "UINTEGER", "USMALLINT", "UTINYINT",
            "DOUBLE", "FLOAT", "DECIMAL")  # fmt: skip
_TIMES = (TIME, "TIMESTAMP")
_RFC_3339 = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?"


@dataclass(frozen=True)
class Conversion:
    """Two expressions over the staged column: its value in the target's type, and whether it is lost on the way
    (``None``: it never is). A lost value is NULL in the first."""

    value: str
    lost: str | None = None


def convert(column: str, source: str, target: str, asked: bool = False) -> Conversion:
    """How ``column`` (a quoted name) of type ``source`` goes into a column of type ``target``.

    ``asked`` says that the target's type is the one a step asked for: then rounding is what was wanted, and only a
    value that cannot be cast at all is lost.
    """
    if source == target:
        return Conversion(column)
    if target == TEXT:
        return Conversion(_text(column, source))
    cast = f"TRY_CAST({column} AS {target})"
    if asked:
        return Conversion(cast, f"({column} IS NOT NULL AND {cast} IS NULL)")
    fits = f"COALESCE({_returns(column, cast, source, target)}, FALSE)"
    return Conversion(f"CASE WHEN {fits} THEN {cast} END", f"({column} IS NOT NULL AND NOT {fits})")


def original(column: str, source: str) -> str:
    """The value of ``column`` as JSON, to be kept where its own column cannot take it."""
    if source.startswith("DECIMAL"):  # to_json would go through a double
        return f"CAST(CAST({column} AS {TEXT}) AS JSON)"
    return f"to_json({_text(column, source) if source == TIME else column})"


def _text(column: str, source: str) -> str:
    if source == TIME:
        return f"strftime({column}, '%Y-%m-%dT%H:%M:%S.%fZ')"
    return f"CAST({column} AS {TEXT})"


def _returns(column: str, cast: str, source: str, target: str) -> str:
    """Whether the converted value says the same as the original."""
    if source == TEXT and target.startswith(_NUMBERS):
        # '1.50' and 1.5 are the same number; 'nan' and 'inf' are words.
        digits = _without_trailing_zeros(f"CAST({cast} AS {TEXT})")
        return f"({column} SIMILAR TO '-?[0-9].*' AND {_without_trailing_zeros(column)} = {digits})"
    if source == TEXT and target in _TIMES:
        return f"(regexp_full_match({column}, '{_RFC_3339}') AND {cast} IS NOT NULL)"
    return f"TRY_CAST({cast} AS {source}) = {column}"


def _without_trailing_zeros(text: str) -> str:
    return f"CASE WHEN contains({text}, '.') THEN rtrim(rtrim({text}, '0'), '.') ELSE {text} END"
