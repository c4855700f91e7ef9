"""Takes files out of a folder: a file is appended to the log as a whole, then removed.

Killed between the two, it appends the file again: at least once. A line that is no JSON object is kept as it is, marked
``malformed`` with its place, and fails on every route instead of getting lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event

from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog
from penstock.record import Header, Record, entries
from penstock.sources.contract import Source
from penstock_example.spool.config import SpoolConfig


class SpoolSource(Source[SpoolConfig]):
    def run(self, stopping: Event, once: bool = False) -> None:
        log = LocalLog(self.context.log_dir, LogConfig.model_validate_json(self.context.log_options))
        with log.writer(self.context.name) as writer:
            while not stopping.is_set():
                for path in sorted(self.config.path.glob("*.ndjson")):
                    # When append returns, the records are on disk. What sent them may forget them only then.
                    writer.append(entries(self._records(path)))
                    path.unlink()
                    if stopping.is_set():
                        return
                if once or stopping.wait(self.config.poll):
                    return

    def check(self) -> str:
        waiting = len(list(self.config.path.glob("*.ndjson")))
        return f"{self.config.path}: {waiting} files to take"

    def _records(self, path: Path) -> Iterator[Record]:
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if not line.strip():
                continue
            reason = _problem(line)
            headers: dict[str, str] = {Header.MALFORMED: f"{path.name}:{number}: {reason}"} if reason else {}
            yield Record(line, self.context.name, headers=headers)


def _problem(line: bytes) -> str | None:
    """Why a line is no event."""
    try:
        value = json.loads(line.decode())
    except ValueError as error:
        return str(error)
    return None if isinstance(value, dict) else "not a JSON object"
