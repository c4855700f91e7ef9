"""Filters the output of Spark's JVM and its Python processes line by line: messages pass, the frames of stack traces
and the chatter of a start do not.

Frames are kept in a separate file for whoever has to find a defect.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

KEPT_CHARACTERS = 4 << 20
"""How much of the stack traces is kept."""

_FRAME = re.compile(r"\s+at [\w.$/<>@-]+\(.*\)\s*|\s*\.\.\. \d+ (?:more|common).*", re.DOTALL)
_MAIN_ENDED = re.compile(r'Exception in thread "main" (.+)')
_PYTHON_TRACE = re.compile(
    r"Traceback \(most recent call last\):\s*|(?:During handling of|The above exception was) .*:\s*"
)
_CHATTER = re.compile(
    r"WARNING: Using incubator modules.*|Setting default log level to .*|To adjust logging level use .*"
    r"|Using Spark's default log4j profile.*|WARNING: package sun\.security\.action not in java\.base.*"
    r"|(?:Starting )?Streaming TransformWithState\w* Python worker.*|\s*",
    re.DOTALL,
)


class OutputFilter:
    """Used by one thread. Starts with an empty ``traces`` file.

    ``main_error``: what ended the JVM's main thread. Other threads keep such a JVM alive, and nothing comes of it.
    """

    def __init__(self, traces: Path) -> None:
        self.main_error: str | None = None
        self._traces = traces
        self._told = False
        self._in_python_trace = False
        self._room = KEPT_CHARACTERS
        traces.unlink(missing_ok=True)

    def filter_line(self, line: str) -> str:
        """The part of a line to show; often nothing. Frames go to the file."""
        if _CHATTER.fullmatch(line):
            return ""
        if ended := _MAIN_ENDED.search(line):
            self.main_error = ended[1]
        # The frames of a Python trace are indented; the first line after them that is not is the message.
        begins = _PYTHON_TRACE.fullmatch(line) is not None
        self._in_python_trace = begins or (self._in_python_trace and line.startswith((" ", "\n")))
        if not self._in_python_trace and not _FRAME.fullmatch(line):
            return line
        if self._room > 0:
            self._keep(line)
        if self._told:
            return ""
        self._told = True
        return f"  (traces are in {self._traces})\n"

    def _keep(self, line: str) -> None:
        self._room -= len(line)
        try:
            handle = os.open(self._traces, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(line)
        except OSError:  # a full disk must not stop the JVM's output
            self._room = 0
