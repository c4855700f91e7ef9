"""DuckDB itself, kept from one batch to the next. A file is attached to it only while somebody works with the file.

An instance of DuckDB takes 20 ms to start, and 20 more for its first look at a catalog; attaching a file takes one.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from penstock.destinations.duckdb.dialect import DUCKDB
from penstock.destinations.duckdb.merge_function import register_merge_function

_NO_FILE = "_penstock_no_file"
"""The database of an instance without a file. By itself it would be called `memory`, as a file may be."""


class Instance:
    """Serves one file at a time, as if it had been opened for this file alone."""

    def __init__(self) -> None:
        self._own = duckdb.connect()
        self._own.execute(f"ATTACH ':memory:' AS {_NO_FILE}")
        self._own.execute(f"USE {_NO_FILE}")
        self._own.execute("DETACH memory")
        register_merge_function(self._own)
        self._file: duckdb.DuckDBPyConnection | None = None
        self._name = ""
        self._spills_to = Path()

    def attach(self, path: Path, read_only: bool, checkpoint: bool) -> duckdb.DuckDBPyConnection:
        """A connection to the file, which is made if it is not there. Times are in UTC. Without ``checkpoint`` what is
        in the write-ahead log stays there when the file is closed."""
        self._spills_to = Path(f"{path}.tmp")
        self._own.execute(f"SET temp_directory = {_text(self._spills_to)}")
        self._own.execute(f"PRAGMA {'enable' if checkpoint else 'disable'}_checkpoint_on_shutdown")
        # The file's own name: views of the file may spell it.
        self._own.execute(f"ATTACH {_text(path)} (READ_ONLY {read_only})")
        found = self._own.execute("SELECT database_name FROM duckdb_databases() WHERE path IS NOT NULL").fetchall()
        ((self._name,),) = found
        self._file = self._own.cursor()
        self._file.execute("SET TimeZone = 'UTC'")
        self._file.execute(f"USE {DUCKDB.identifier(self._name)}")
        return self._file

    def detach(self) -> bool:
        """Close the file; what was not committed is rolled back. Returns whether the instance is as good as new."""
        assert self._file is not None
        self._file.close()
        # What was committed is safe in the write-ahead log, also where there is no room to write it into the file.
        with suppress(duckdb.Error):
            self._own.execute(f"DETACH {DUCKDB.identifier(self._name)}")
            # It cannot spill to another folder after this one, and removes it only at its end.
            return not self._spills_to.exists()
        return False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._own.close()


@contextmanager
def lend_instance() -> Iterator[Instance]:
    """An instance for one caller at a time, who attaches one file. After an error it is not used again."""
    try:
        instance = _idle.pop()
    except IndexError:
        instance = Instance()
    usable = False
    try:
        yield instance
        usable = instance.detach()
    finally:
        if usable:
            _idle.append(instance)
        else:
            instance.close()


_idle: list[Instance] = []
"""As many as files were open at the same time."""
_inherited: list[Instance] = []


@atexit.register
def _close_idle() -> None:
    while _idle:
        _idle.pop().close()


def _leave_to_parent() -> None:
    # A forked process has none of the threads of an instance: it can neither use nor close it.
    _inherited.extend(_idle)
    _idle.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
