"""The SQL function that merges two ``_unmapped`` objects, member by member, each value as it is written.

DuckDB's own ``json_merge_patch`` reads numbers into doubles and writes them again: digits that a double does not keep
would be lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
from duckdb.func import SPECIAL

from penstock.json.merge import members_of

MERGE_UNMAPPED = "penstock_merge_unmapped"


def register_merge_function(connection: duckdb.DuckDBPyConnection) -> None:
    """Register the function ``MERGE_UNMAPPED(there, comes, outdated)`` with the connection."""
    text = duckdb.sqltypes.VARCHAR
    texts = connection.list_type(text)
    connection.create_function(MERGE_UNMAPPED, merge_unmapped, [text, text, texts], text, null_handling=SPECIAL)


def merge_unmapped(there: str, comes: str | None, outdated: Sequence[str | None]) -> str | None:
    """The members of both objects, without the ``outdated`` ones of the first; the second object's value wins."""
    kept = members_of(there.strip().encode())
    for name in outdated:
        if name is not None:
            kept.pop(name, None)
    if comes is not None:
        new = members_of(comes.strip().encode())
        kept = {name: member for name, member in kept.items() if name not in new} | new
    if not kept:
        return None
    return (b"{" + b",".join(name + b":" + value for name, value in kept.values()) + b"}").decode()
