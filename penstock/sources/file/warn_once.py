"""Warnings about a file, logged once and not at every poll."""

from __future__ import annotations

import logging

from penstock.sources.file.discovery import FoundFile
from penstock.sources.file.file_reader import readable

_log = logging.getLogger("penstock.file")


class WarnOnce:
    """Remembers the last warning about each file that cannot be read."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, str, int, int]] = {}

    def warn(self, file: FoundFile, what: str) -> None:
        """Warn, unless the same warning was logged and the file has not changed since."""
        now = (what, str(file.path), file.size, file.changed)
        if self._last.get(file.id) != now:
            self._last[file.id] = now
            _log.warning("%s %s", readable(str(file.path)), what)

    def forget(self, id: str) -> None:
        """The file can be read: warn again should that change."""
        self._last.pop(id, None)
