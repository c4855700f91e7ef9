"""Console blocks of documents: what to type, what is shown then, and whether that is what was printed.

A block is fenced as ``console``. A line that begins with ``$ `` is typed; it goes on as long as a quote or a backslash
leaves it open. What follows, up to the next such line, is shown. ``# leave it running`` behind a command says that the
following ones are typed in another terminal. A line of three dots stands for any lines.

What differs from run to run is not compared (``normal``): times, durations, process ids, rates with their column, sizes
on disk, the length of lines and the width of columns.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

RUNNING = "# leave it running"

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIES = [
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([.,]\d+)?(Z|\+00)?"), "<time>"),
    (re.compile(r"\b\d+:\d\d:\d\d\b"), "<duration>"),
    (re.compile(r"\b\d+(\.\d+)? s\b"), "<duration>"),
    (re.compile(r"\bpid \d+"), "pid <number>"),
    (re.compile(r"\b\d+(\.\d+)? (B|KiB|MiB)\b"), "<size>"),
    # The column is there only if something flowed a moment ago.
    (re.compile(r" rate\b| [\d,]+/s\b"), ""),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"([─━])[─━]*"), r"\1"),
]


@dataclass(frozen=True)
class Typed:
    """A command of a block and what the document shows below it."""

    command: str
    shown: str

    @property
    def keeps_running(self) -> bool:
        return RUNNING in self.command


def console_blocks(text: str) -> Iterator[Typed]:
    """All commands of a document, in order."""
    for block in _BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            typed = [lines.pop(0)]
            while _is_open("\n".join(typed)):
                typed.append(lines.pop(0))
            yield Typed("\n".join(typed), "\n".join(lines))


def _is_open(command: str) -> bool:
    try:
        shlex.split(command, comments=True)
    except ValueError:  # a quote without its end
        return True
    return command.endswith("\\")


def normal(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, instead in _VARIES:
        text = pattern.sub(instead, text)
    return "\n".join(line.strip() for line in text.strip().splitlines())


def shows(shown: str, printed: str) -> bool:
    """Whether a document shows what was printed, but for what differs and what its dots leave out."""
    lines = normal(shown).splitlines()
    wanted = "".join(r"(?:.*\n)*" if line == "..." else re.escape(f"{line}\n") for line in lines)
    return re.fullmatch(wanted, "".join(f"{line}\n" for line in normal(printed).splitlines())) is not None


def ends_in_the_form(shown: str, printed: str) -> bool:
    """Whether what was printed ends as it is shown, but for all numbers and for where lines are broken."""
    pieces = [_form(piece) for piece in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)]
    return re.search(".*".join(map(re.escape, pieces)) + "$", _form(printed)) is not None


def _form(text: str) -> str:
    return re.sub(r"\d[\d,]*", "<number>", " ".join(normal(text).split()))
