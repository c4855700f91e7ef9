"""A table that bears the name of its source mirrors that one and no other, and so does each of its columns.

Tables of two schemas may have one name. Their rows must not meet: what empties one would empty both. So a table says,
in a comment that people can read too, whose mirror it is, and changes of another wait until somebody decides. A table
that is meant for rows of several is not emptied for one of them. Columns that are called otherwise than at the source
say so too: a column that comes later and would get that name gets another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.destinations.sql.mirror.fold_changes import Change
from penstock.destinations.sql.mirror.screening import Failures
from penstock.destinations.sql.mirror.stage.change_header import MirrorHeader
from penstock.destinations.sql.mirror.stage.staged_changes import Stretch
from penstock.destinations.sql.schema.table_changes import Comment, CreateTable, Operation, Table, new_columns
from penstock.destinations.sql.session import Comments
from penstock.errors import TransientError

_MIRROR = "Mirror of "
_BETWEEN = ", "


def remarks(table: str, header: MirrorHeader, operations: Sequence[Operation], comment: str) -> list[Operation]:
    """What to write about the table, if it is or was made by us, and about the columns that these changes make.

    ``comment`` is what is written already.
    """
    known, found = namespaces_of(comment), list[Operation]()
    made = any(isinstance(operation, CreateTable) for operation in operations)
    if (made or known) and not set(header.namespaces) <= set(known):
        found.append(Comment(table, _MIRROR + _BETWEEN.join(dict.fromkeys([*known, *header.namespaces]))))
    sources = {column.name: column.source for column in header.columns}
    for column in (column for operation in operations for column in new_columns(operation)):
        source = sources.get(column.name, column.name)
        if source != column.name:
            found.append(Comment(table, _MIRROR + source, column.name))
    return found


def namespaces_of(comment: str) -> list[str]:
    """The namespaces whose rows a table has, by what we have written about it."""
    return comment.removeprefix(_MIRROR).split(_BETWEEN) if comment.startswith(_MIRROR) else []


def settled_columns(table: Table | None, comments: Comments) -> Mapping[str, str]:
    """By our names the columns of which it is known what they mirror. In a table that we made, those of which nothing
    is said are called as they are at the source."""
    said = {name: text.removeprefix(_MIRROR) for name, text in comments.columns.items() if text.startswith(_MIRROR)}
    if table is None or not namespaces_of(comments.table):
        return said
    return {**{name: name for name in table.columns}, **said}


def unable_to_empty(stretch: Stretch, comment: str) -> Failures:
    """The changes that would empty a table which has rows of other namespaces, too."""
    sources = list(dict.fromkeys([*namespaces_of(comment), *stretch.header.namespaces]))
    if len(sources) == 1:
        return {}
    why = f"the table has rows of {_BETWEEN.join(sources)}: emptied for one of them it would lose those of the others"
    return dict.fromkeys(np.flatnonzero(stretch.change == Change.TRUNCATE).tolist(), ("shared_table", why))


def check_source(table: str, namespaces: Sequence[str], comment: str) -> None:
    """Raises if changes of these namespaces must not go into the table of which this is written."""
    sources = list(dict.fromkeys([*namespaces_of(comment), *namespaces]))
    if len(sources) > 1:
        raise TransientError(
            "PEN-DST-090",
            f"the table '{table}' mirrors {sources[0]}, and {', '.join(sources[1:])} would go there too.",
            'Name tables apart with `table: "{{ namespace }}"` or a step `remap`, give a route `namespace`, or say'
            " `table: ...` to have them in one. If the source was renamed, take the comment off the table.",
        )
