"""A table that bears the name of its source mirrors that one and no other.

Tables of two schemas may have one name. Their rows must not meet: what empties one would empty both. So a table says,
in a comment that people can read too, whose mirror it is, and changes of another wait until somebody decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import TransientError

_BEGINS = "Mirror of "


def mirror_of(namespace: str) -> str:
    """What is written about a table."""
    return f"{_BEGINS}{namespace}"


def check_source(table: str, namespaces: Sequence[str], comment: str | None) -> None:
    """Raises if changes of these namespaces must not go into the table of which this is written."""
    known = [comment.removeprefix(_BEGINS)] if comment and comment.startswith(_BEGINS) else []
    sources = list(dict.fromkeys([*known, *namespaces]))
    if len(sources) > 1:
        raise TransientError(
            "PEN-DST-090",
            f"the table '{table}' mirrors {sources[0]}, and {', '.join(sources[1:])} would go there too.",
            'Name tables apart with `table: "{{ namespace }}"`, give a route `namespace`, or say `table: ...` to have'
            " them in one. If the source was renamed, take the comment off the table.",
        )
