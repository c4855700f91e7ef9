"""The files that stay open between polls: they are read to their end also when they were renamed or removed."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from penstock.sources.file.config import FileConfig
from penstock.sources.file.content import Content
from penstock.sources.file.discovery import FoundFile, found_as
from penstock.sources.file.formats.file_format import open_content

MOST_OPEN = 64
"""How many files stay open: those that changed last, the likeliest to be renamed or removed while read."""


@dataclass
class OpenFile:
    path: Path
    content: Content
    last_size: int = -1
    """Its size one poll ago, since it is no longer found at its path."""


class OpenFiles:
    """Open files by id."""

    def __init__(self, config: FileConfig) -> None:
        self._config = config
        self._files: OrderedDict[str, OpenFile] = OrderedDict()

    def __contains__(self, id: str) -> bool:
        return id in self._files

    def get(self, id: str) -> OpenFile | None:
        return self._files.get(id)

    def moved_files(self, here: dict[str, Path]) -> list[tuple[str, OpenFile]]:
        """The open files that are not among ``here``."""
        return [(id, file) for id, file in self._files.items() if id not in here]

    def open(self, file: FoundFile) -> Content | None:
        """The content of the file, opened if needed. None if another file has its path by now. Raises ``OSError``."""
        known = self._files.get(file.id)
        if known is not None:
            self._files.move_to_end(file.id)
            known.path = file.path
            return known.content
        content = open_content(file.path, self._config)
        if found_as(file.path, content.stat()).id != file.id:
            content.close()
            return None
        self._files[file.id] = OpenFile(file.path, content)
        while len(self._files) > MOST_OPEN:
            self._files.popitem(last=False)[1].content.close()
        return content

    def close_file(self, id: str) -> None:
        self._files.pop(id).content.close()

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].content.close()
