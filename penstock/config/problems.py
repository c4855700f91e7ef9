"""Problems in a config file, with all that is needed to fix them: where, which key, what, and the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.errors import PenstockError
from penstock.redaction import redacted


@dataclass(frozen=True, order=True)
class Position:
    """A place in a text as editors count: the first character is line 1, column 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Problem:
    """One error. ``key`` is its dotted path (``routes.warehouse.to.path``), empty for the file as a whole."""

    file: str
    position: Position | None
    key: str
    what: str
    fix: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.position.line}:{self.position.column}" if self.position else self.file
        about = f"{self.key}: " if self.key else ""
        return f"{place}: {about}{_sentence(self.what)}" + (f" {_sentence(self.fix)}" if self.fix else "")


class ConfigError(PenstockError):
    """A config file that cannot be used, with every problem that was found in it."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        shown = (
            replace(each, key=redacted(each.key), what=redacted(each.what), fix=redacted(each.fix)) for each in problems
        )
        self.problems: Sequence[Problem] = sorted(shown, key=lambda p: p.position or Position(0, 0))
        count = len(self.problems)
        super().__init__("PEN-CFG-001", f"{count} problem{'' if count == 1 else 's'} in {file}.")

    def __str__(self) -> str:
        return "\n".join([*map(str, self.problems), super().__str__()])

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, list[Problem]]]:
        return ConfigError, (self.file, list(self.problems))


def suggestion(wrong: str, known: Iterable[str], noun: str) -> str:
    """The known word that was probably meant, or all of them."""
    words = sorted(known)
    by_lower = {word.lower(): word for word in words}
    close = difflib.get_close_matches(wrong.lower(), by_lower, n=1, cutoff=0.6)
    if close:
        return f"Did you mean '{by_lower[close[0]]}'?"
    return f"Known {noun}: {', '.join(words)}." if words else ""


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."
