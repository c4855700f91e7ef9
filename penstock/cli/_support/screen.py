"""What verbs print with: tables for people, JSON for machines, and text of unknown origin made safe to show.

Honours ``NO_COLOR`` and output that is not a terminal. Lines into a pipe are never cut to a width.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.redaction import redacted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_PIPE_WIDTH = 240
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

JsonValue = str | int | float | bool | None | Sequence["JsonValue"] | Mapping[str, "JsonValue"]


def console(stderr: bool = False) -> Console:
    """A new console for each use, so that it writes to the current stdout. Text is shown as it is: no markup."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    fixed = None if stream.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return Console(file=stream, width=fixed, markup=False, highlight=False, emoji=False)


def show(*what: RenderableType) -> None:
    """Print things one below the other, with an empty line between them. Lines of text stay as long as they are: a path
    that is broken in two cannot be copied."""
    screen = console()
    for place, part in enumerate(what):
        if place:
            screen.print()
        screen.print(part, soft_wrap=isinstance(part, str))


def note(text: str) -> None:
    """Print a remark on stderr; stdout stays clean for the output."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def table(
    *columns: str, rows: Iterable[Sequence[RenderableType]] = (), numbers: Sequence[str] = (), title: str | None = None
) -> Table:
    """A table; columns in ``numbers`` are right-aligned."""
    from rich import box
    from rich.table import Table

    made = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title=title,
        title_justify="left",
        title_style="bold",
    )
    for name in columns:
        made.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def print_json(value: JsonValue) -> None:
    """One document."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_json_line(value: JsonValue) -> None:
    """One object of a stream."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def printable(text: str) -> str:
    """The text without secrets, and with control characters escaped: foreign text must not control a terminal. Secrets
    are removed before a table breaks its lines, where they could not be found any more."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", redacted(text))


def moment(time: datetime) -> str:
    """``2026-01-31T12:00:00.125Z``"""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_of(seconds: float) -> str:
    return moment(datetime.fromtimestamp(seconds, UTC))


def count(number: int) -> str:
    return f"{number:,}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 route``, ``2 routes``, ``3 entries``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(number: int) -> str:
    """``1.5 MiB``"""
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
