"""What is said about a file once, and not again at every look."""

from __future__ import annotations

import logging

from penstock.sources.file.discovery import Found
from penstock.sources.file.file_reader import readable

_log = logging.getLogger("penstock.file")


class Said:
    """The last thing that was said of each file that cannot be read."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, str, int, int]] = {}

    def once(self, file: Found, what: str) -> None:
        """Warn, unless the same was said of the file as it is now."""
        now = (what, str(file.path), file.size, file.changed)
        if self._last.get(file.id) != now:
            self._last[file.id] = now
            _log.warning("%s %s", readable(str(file.path)), what)

    def forget(self, id: str) -> None:
        """It can be read: should that change, it is worth a word again."""
        self._last.pop(id, None)
