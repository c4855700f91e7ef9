"""A table that bears the name of its source mirrors that one and no other, and so does each of its columns.

Tables of two schemas may have one name. Their rows must not meet: what empties one would empty both. So a table says,
in a comment that people can read too, whose mirror it is, and changes of another wait until somebody decides. Columns
that are called otherwise than at the source say so too: a column that comes later and would get that name gets another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.destinations.sql.mirror.header import MirrorHeader
from penstock.destinations.sql.operations import Comment, CreateTable, Operation, Table, new_columns
from penstock.destinations.sql.session import Comments
from penstock.errors import TransientError

_MIRROR = "Mirror"
_BEGINS = f"{_MIRROR} of "


def remarks(table: str, header: MirrorHeader, operations: Sequence[Operation], one_source: bool) -> list[Operation]:
    """What to write about the table and the columns that these changes make."""
    sources = {column.name: column.source for column in header.columns}
    found: list[Operation] = []
    if any(isinstance(operation, CreateTable) for operation in operations):
        found.append(Comment(table, _BEGINS + header.namespaces[0] if one_source else _MIRROR))
    for column in (column for operation in operations for column in new_columns(operation)):
        source = sources.get(column.name, column.name)
        if source != column.name:
            found.append(Comment(table, _BEGINS + source, column.name))
    return found


def settled_columns(table: Table | None, comments: Comments) -> Mapping[str, str]:
    """By our names the columns of which it is known what they mirror. In a table that we made, those of which nothing
    is said are called as they are at the source."""
    ours = table is not None and comments.table.startswith(_MIRROR)
    said = {name: text.removeprefix(_BEGINS) for name, text in comments.columns.items() if text.startswith(_BEGINS)}
    return {**({name: name for name in table.columns} if table is not None and ours else {}), **said}


def check_source(table: str, namespaces: Sequence[str], comment: str) -> None:
    """Raises if changes of these namespaces must not go into the table of which this is written."""
    known = [comment.removeprefix(_BEGINS)] if comment.startswith(_BEGINS) else []
    sources = list(dict.fromkeys([*known, *namespaces]))
    if len(sources) > 1:
        raise TransientError(
            "PEN-DST-090",
            f"the table '{table}' mirrors {sources[0]}, and {', '.join(sources[1:])} would go there too.",
            'Name tables apart with `table: "{{ namespace }}"` or a step `remap`, give a route `namespace`, or say'
            " `table: ...` to have them in one. If the source was renamed, take the comment off the table.",
        )
