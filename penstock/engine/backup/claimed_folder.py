"""The folder in which a backup, or what is restored, is put together: one process has it at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.errors import PenstockError


@contextmanager
def claim_folder(folder: Path) -> Iterator[None]:
    """Have a folder that is there to oneself, whatever its name is in the end. A process that is killed gives it up."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Not every file system can lock a folder (NFS cannot); there it is taken on trust.
        with suppress(OSError):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PenstockError(
                    "PEN-BAK-016",
                    f"another process is putting together {folder}.",
                    "Wait until it is done, or name another folder.",
                ) from None
        yield
    finally:
        os.close(handle)
