"""Checks whether ``data_dir`` can be used before anything is started in it.

Every process checks: each would otherwise fail in its own way, at another file, over and over.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from penstock.engine.layout import Layout
from penstock.errors import DataDirError

FIX = "Give this user permission to write there, or set another `data_dir`."
DEPTH = 3
"""How many levels are checked: the folders of partitions, sources and routes, and the files in them."""

_TRANSIENT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EINTR})
"""Errors that say nothing about rights: such a folder may be usable later, and whoever writes to it reports them."""


def require_writable(root: Path) -> None:
    """Create the folder if it is missing. Raises ``DataDirError`` if this process cannot write to everything that a
    pipeline keeps there. Other things in it, such as a disk's ``lost+found``, do not matter."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
        unwritable = next(_unwritable(Layout(root).own, DEPTH), None)
    except OSError as error:
        if error.errno in _TRANSIENT:
            return
        reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror or str(error)
        raise _unusable(root, reason) from error
    if unwritable is not None:
        raise _unusable(root, f"{unwritable} cannot be written")


def _unwritable(paths: Iterable[Path], depth: int) -> Iterator[Path]:
    for path in paths:
        is_folder = path.is_dir()
        needed = os.R_OK | os.W_OK | (os.X_OK if is_folder else 0)
        # A path that is gone meanwhile does not matter.
        if not os.access(path, needed, effective_ids=True) and os.path.lexists(path):
            yield path
        elif is_folder and depth > 1:
            with suppress(FileNotFoundError):
                yield from _unwritable(list(path.iterdir()), depth - 1)


def _unusable(root: Path, reason: str) -> DataDirError:
    return DataDirError("PEN-ENG-040", f"the data folder {root} cannot be used: {reason}.", FIX)
