"""A table that has the name of its source mirrors only that source, and so does each of its columns.

Tables of two schemas may have the same name. Their rows must not mix: a truncate of one would empty both. So a comment
on the table, which people can read too, names the source that it mirrors, and changes of another source wait until
somebody decides. A table that is meant for rows of several sources is not emptied for one of them. A comment on a
column names its source column if the names differ: a later column that would get the same name gets another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.destinations.sql.mirror.fold_changes import Change
from penstock.destinations.sql.mirror.screening import Failures
from penstock.destinations.sql.mirror.stage.change_header import MirrorHeader
from penstock.destinations.sql.mirror.stage.staged_changes import Stretch
from penstock.destinations.sql.schema.schema_operations import Comment, CreateTable, Operation, Table, new_columns
from penstock.destinations.sql.session import Comments
from penstock.errors import TransientError

_MIRROR = "Mirror of "
_BETWEEN = ", "


def mirror_comments(table: str, header: MirrorHeader, operations: Sequence[Operation], comment: str) -> list[Operation]:
    """The comments to write on the table, if we make or made it, and on the columns that these changes add.

    ``comment`` is the table's present one.
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
    """The namespaces whose rows a table has, according to our comment on it."""
    return comment.removeprefix(_MIRROR).split(_BETWEEN) if comment.startswith(_MIRROR) else []


def known_columns(table: Table | None, comments: Comments) -> Mapping[str, str]:
    """The columns, by our names, whose source column is known. In a table that we made, columns without a comment have
    the same name at the source."""
    said = {name: text.removeprefix(_MIRROR) for name, text in comments.columns.items() if text.startswith(_MIRROR)}
    if table is None or not namespaces_of(comments.table):
        return said
    return {**{name: name for name in table.columns}, **said}


def bad_truncates(stretch: Stretch, comment: str) -> Failures:
    """The truncates of a table that also has rows of other namespaces."""
    sources = list(dict.fromkeys([*namespaces_of(comment), *stretch.header.namespaces]))
    if len(sources) == 1:
        return {}
    why = f"the table has rows of {_BETWEEN.join(sources)}: emptied for one of them it would lose those of the others"
    return dict.fromkeys(np.flatnonzero(stretch.change == Change.TRUNCATE).tolist(), ("shared_table", why))


def check_source(table: str, namespaces: Sequence[str], comment: str) -> None:
    """Raises if changes of these namespaces must not go into the table with this comment."""
    sources = list(dict.fromkeys([*namespaces_of(comment), *namespaces]))
    if len(sources) > 1:
        raise TransientError(
            "PEN-DST-090",
            f"the table '{table}' mirrors {sources[0]}, and {', '.join(sources[1:])} would go there too.",
            'Name tables apart with `table: "{{ namespace }}"` or a step `remap`, or give a route `namespace`. To merge'
            " them into one table, set `table: NAME`. If the source was renamed, remove the comment: COMMENT ON TABLE"
            f' "{table}" IS NULL;',
        )
