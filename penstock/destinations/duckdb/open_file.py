"""Opens a DuckDB file for one caller at a time of this process."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from penstock.destinations.duckdb.instance import lend_instance
from penstock.destinations.duckdb.mirror_applier import line
from penstock.errors import TransientError

_turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""Routes of one process that share a file take turns, so their schema changes cannot clash."""


@contextmanager
def open_file(path: Path, read_only: bool = False, checkpoint: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for this call alone. Leaving it without a commit rolls everything back. Raises ``TransientError`` if
    another process has the file, or it cannot be opened."""
    with _turns[os.path.realpath(path)], lend_instance() as instance:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = instance.attach(path, read_only, checkpoint)
        except (duckdb.Error, OSError) as error:
            raise _cannot_open(path, error) from error
        yield connection


def _cannot_open(path: Path, error: Exception) -> TransientError:
    if "lock" in str(error):
        return TransientError(
            "PEN-DST-021",
            f"{path} is locked by another process.",
            f"Close the other connection; the batch is tried again. DuckDB says: {line(error)}",
        )
    return TransientError(
        "PEN-DST-022", f"{path} cannot be opened: {line(error)}", "See that it is a DuckDB file that you may write."
    )
