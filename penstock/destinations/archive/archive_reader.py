"""Reads an archive back: the events as they were, in the order of the files' times."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import PenstockError

ENDING = ".log.gz"
_TIME = re.compile(r"\d+-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}$")


def read_archive(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The events of one file, of one day's folder, or of a whole archive, each as its bytes without the line's end.

    Raises ``PenstockError`` for a missing path or a damaged file, after yielding all that is whole before the damage.
    """
    for file in archive_files(Path(path)):
        try:
            with gzip.open(file, "rb") as lines:
                for line in lines:
                    yield line.removesuffix(b"\n")
        except (OSError, EOFError, zlib.error) as error:
            raise PenstockError(
                "PEN-DST-062",
                f"cannot read {file} to its end: {error}.",
                "Put the file back from a copy, or name the other files.",
            ) from error


def archive_files(path: Path) -> list[Path]:
    """The file itself, or the archive's files in a folder and below it, oldest first."""
    if path.is_dir():
        return sorted(path.rglob(f"*{ENDING}"), key=_age)
    if path.is_file():
        return [path]
    raise PenstockError("PEN-DST-063", f"there is no archive at {path}.", "Name a file or a folder of an archive.")


def _age(path: Path) -> tuple[str, str]:
    found = _TIME.search(path.name.removesuffix(ENDING))
    return found[0] if found else "", path.name
