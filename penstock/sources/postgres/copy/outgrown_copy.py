"""Whether the copied rows of a table can take the changes that come now, by what became of its columns since.

PostgreSQL says nothing of the rows that a changed definition gives other values. For most tables that does no harm: a
row comes in its new shape when it is next written. It does where a change could no longer be applied to the row that it
is about, and where a mirror would keep values that the source has dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.sources.postgres.catalog.table_layout import Layout
from penstock.sources.postgres.progress import CopiedColumn


def why_outgrown(copied: Sequence[CopiedColumn], layout: Layout) -> str | None:
    """Why a table that was copied with these columns must be copied again now that it has this layout; None: it need
    not be."""
    known = {column.name: column for column in copied}
    new_key = sorted(set(layout.key) - known.keys())
    if new_key:
        return f"has a new key ({', '.join(new_key)})"
    made_again = [column.name for column in layout.columns if _is_another(known.get(column.name), column.number)]
    if made_again:
        return f"has new columns under names of former ones ({', '.join(made_again)})"
    if layout.key:
        return None
    # Without a key, a change names its row by all values, also by those that the row got with the new definition.
    others = [column.name for column in layout.columns if not _has_type(known.get(column.name), column.type)]
    return f"has no key, and other columns or types than before ({', '.join(others)})" if others else None


def _is_another(known: CopiedColumn | None, number: int) -> bool:
    return known is not None and 0 not in (known.number, number) and known.number != number


def _has_type(known: CopiedColumn | None, kind: str) -> bool:
    return known is not None and known.type in ("", kind)
