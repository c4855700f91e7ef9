"""The tables that a config allows records to go to: names, and patterns that a whole name must match."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.flatten.column_naming import key_name

RESERVED_PREFIX = "_penstock_"
"""Penstock's own tables at a target begin with this. No record goes there, whatever a config allows."""

OVERFLOW_PREFIX = "_penstock_overflow_"
"""The name of the table for rows beyond `max_tables`, followed by the route."""


@dataclass(frozen=True)
class AllowedTables:
    names: frozenset[str] = frozenset()
    patterns: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def of(cls, words: Iterable[str]) -> AllowedTables:
        """Raises ``ValueError`` with the reason for a word that is neither a name nor a pattern."""
        words = list(words)
        patterns = [word for word in words if word.startswith("/")]
        return cls(
            frozenset(table_name(word) for word in words if not word.startswith("/")),
            tuple(_pattern(word) for word in patterns),
        )

    def allows(self, table: str) -> bool:
        """Whether a record may go to this table. If nothing is listed, any table is allowed."""
        if not self.names and not self.patterns:
            return True
        return table in self.names or any(pattern.fullmatch(table) for pattern in self.patterns)


def table_name(word: str) -> str:
    """A name that is spelled exactly as the table's will be. Raises ``ValueError`` for any other."""
    if key_name(word) != word:
        raise ValueError(f"'{word}' is no table's name; it would be '{key_name(word)}'")
    if word.startswith(RESERVED_PREFIX):
        raise ValueError(f"'{word}' is a table of Penstock's own")
    return word


def _pattern(word: str) -> re.Pattern[str]:
    if len(word) < 3 or not word.endswith("/"):
        raise ValueError(f"'{word}' is neither a name nor a pattern between slashes, such as /shop_.*/")
    try:
        return re.compile(word[1:-1])
    except re.error as error:
        raise ValueError(f"'{word}' is not a regular expression: {error}") from error
