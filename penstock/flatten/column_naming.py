"""Makes a column name that every warehouse accepts from a JSON path.

Keys are joined with ``_``. Each character is lowered on its own (``İ`` is ``i``), and whatever is then outside
``[a-z0-9_]`` becomes ``_``; an empty key is ``_unnamed``. A name longer than the destination allows is cut and ends in
eight hexadecimal digits of a hash of the whole path, so two long names that begin alike stay two names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

from penstock.json.paths import format_path

_DIGITS = 8


def column_name(keys: Sequence[str], max_name: int | None = None) -> str:
    """The column of a path; ``max_name`` is the longest name allowed, in characters (at least 9)."""
    name = "_".join(key_name(key) for key in keys)
    if max_name is None or len(name) <= max_name:
        return name
    if max_name <= _DIGITS:
        raise ValueError(f"a column name needs more than {_DIGITS} characters, not {max_name}")
    digest = hashlib.blake2s(format_path(keys).encode("utf-8", "surrogatepass"), digest_size=_DIGITS // 2).hexdigest()
    return f"{name[: max_name - _DIGITS - 1]}_{digest}"


@lru_cache(maxsize=65_536)
def key_name(key: str) -> str:
    """One key's part of a name."""
    return "".join(map(_character, key)) if key else "_unnamed"


def _character(character: str) -> str:
    folded = character.casefold()
    if len(folded) > 1:
        folded = character.lower()[0]
    return folded if folded in _ALLOWED else "_"


_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")
