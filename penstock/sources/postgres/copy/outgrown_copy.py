"""Whether the copied rows of a table can take the changes that come now, by what became of its columns since.

PostgreSQL says nothing of the rows that a changed definition gives other values, and large values that an update leaves
alone are never sent again. So most changed definitions make the copy useless: rows could no longer be found, or would
keep values that the source does not have. What does no harm is a column that comes or goes, and a type that only has
more room than before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.sources.postgres.catalog.table_layout import Column, Layout
from penstock.sources.postgres.progress import CopiedColumn


def why_outgrown(copied: Sequence[CopiedColumn], layout: Layout) -> str | None:
    """Why a table of which the log has these columns must be copied again now that it has this layout; None: it need
    not be."""
    known = {column.name: column for column in copied}
    former_names = {column.number: column.name for column in copied if column.number}
    columns = {column.name: column for column in layout.columns}
    key = [columns[name] for name in layout.key]
    if new_key := [column.name for column in key if column.name not in known]:
        return f"has a new key ({', '.join(sorted(new_key))})"
    if made_again := [column.name for column in layout.columns if _is_another(known.get(column.name), column)]:
        return f"has new columns under names of former ones ({', '.join(made_again)})"
    if other_key := [column.name for column in key if not _has_type(known[column.name], column)]:
        return f"has other types in its key ({', '.join(other_key)})"
    if not key:
        # Without a key, a change names its row by all values, also by those that the row got with the new definition.
        others = [name for name, column in columns.items() if name not in known or not _has_type(known[name], column)]
        return f"has no key, and other columns or types than before ({', '.join(others)})" if others else None
    new = [column for column in layout.columns if column.name not in known]
    if renamed := [column for column in new if column.number in former_names]:
        names = (f"{former_names[column.number]} is {column.name}" for column in renamed)
        return f"has renamed columns ({', '.join(names)})"
    retyped = [name for name, column in columns.items() if name in known and not _takes_over(known[name], column)]
    return f"has columns of other types ({', '.join(retyped)})" if retyped else None


def _is_another(known: CopiedColumn | None, column: Column) -> bool:
    return known is not None and 0 not in (known.number, column.number) and known.number != column.number


def _has_type(known: CopiedColumn, column: Column) -> bool:
    return known.type in ("", column.type)


def _takes_over(known: CopiedColumn, column: Column) -> bool:
    """Whether every value of the former type is, as text, one of the new type: then no row has got another value,
    unless somebody wrote an expression for it."""
    return _has_type(known, column) or _has_more_room(known.type, column.type)


def _has_more_room(former: str, new: str) -> bool:
    if former in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(former) < _INTEGERS.index(new)
    if (text := _LIMITED_TEXT.fullmatch(former)) is not None:
        longer = _LIMITED_TEXT.fullmatch(new)
        return new in ("text", "character varying") or (longer is not None and int(longer[1]) > int(text[1]))
    number, larger = _NUMERIC.fullmatch(former), _NUMERIC.fullmatch(new)
    if number is None or larger is None:
        return {former, new} == {"character varying", "text"}
    return number[2] == larger[2] and int(larger[1]) > int(number[1])


_INTEGERS = ("smallint", "integer", "bigint")
_LIMITED_TEXT = re.compile(r"character varying\((\d+)\)")
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
