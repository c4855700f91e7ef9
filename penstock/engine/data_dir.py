"""Whether ``data_dir`` can be used, asked before anything is started in it.

Every process asks by itself: each would otherwise find out in its own way, at another file, over and over.
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

FIX = "Give this user the right to write there, or set another `data_dir`."
DEPTH = 3
"""How far down it is looked: the folders of partitions, sources and routes, and the files in them."""

_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EINTR})
"""What says nothing of rights: such a folder may be of use later, and whoever writes to it says what is wrong."""


def require_writable(root: Path) -> None:
    """Make the folder if it is missing. Raises ``DataDirError`` if this process could not write to all that a pipeline
    keeps there. What else lies there, such as the ``lost+found`` of a disk of its own, is none of its business."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
        barred = next(_barred(Layout(root).own, DEPTH), None)
    except OSError as error:
        if error.errno in _PASSING:
            return
        reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror or str(error)
        raise _unusable(root, reason) from error
    if barred is not None:
        raise _unusable(root, f"{barred} cannot be written")


def _barred(paths: Iterable[Path], depth: int) -> Iterator[Path]:
    for path in paths:
        is_folder = path.is_dir()
        needed = os.R_OK | os.W_OK | (os.X_OK if is_folder else 0)
        # What has gone meanwhile is nobody's trouble.
        if not os.access(path, needed, effective_ids=True) and os.path.lexists(path):
            yield path
        elif is_folder and depth > 1:
            with suppress(FileNotFoundError):
                yield from _barred(list(path.iterdir()), depth - 1)


def _unusable(root: Path, reason: str) -> DataDirError:
    return DataDirError("PEN-ENG-040", f"the data folder {root} cannot be used: {reason}.", FIX)
