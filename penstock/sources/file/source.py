"""Reads files into the log: every record once, whatever happens in between.

A block of lines is one append that says how far the file was read (``file_progress.py``), so after a kill at any moment
reading resumes at the first line that is not in the log. A line that is not a JSON object is kept as it is, marked
malformed with file and line. Files are identified by more than their path (``follow_files.py``).
"""

from __future__ import annotations

import time
from threading import Event

from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog
from penstock.sources.contract import Source
from penstock.sources.file.config import FileConfig
from penstock.sources.file.file_progress import load_positions, save_positions
from penstock.sources.file.file_reader import FileReader
from penstock.sources.file.follow_files import FileFollower

SUMMARY_SECONDS = 10.0
SUMMARY_SHARE = 0.01
"""How much of the time may go into the summary, which grows with the number of files."""


class FileSource(Source[FileConfig]):
    """Reads to the end (``once``) or follows: new lines at the end of files, new files."""

    def run(self, stopping: Event, once: bool = False) -> None:
        context = self.context
        log = LocalLog(context.log_dir, LogConfig.model_validate_json(context.log_options or "{}"))
        summary = context.state_dir / "positions.json"
        with log.writer(context.name) as writer:
            positions = load_positions(summary, log, writer.partition)

            def keep() -> None:
                save_positions(summary, writer.next_offset, positions)

            writer.before_roll = keep
            keep()
            follower = FileFollower(
                self.config, FileReader(self.config, context.name, writer, positions, stopping, keep)
            )
            saved_at, due = writer.next_offset, time.monotonic() + SUMMARY_SECONDS
            try:
                while not stopping.is_set():
                    follower.read_new(once)
                    if writer.next_offset > saved_at and (began := time.monotonic()) > due:
                        keep()
                        ended = time.monotonic()
                        due = ended + max(SUMMARY_SECONDS, (ended - began) / SUMMARY_SHARE)
                        saved_at = writer.next_offset
                    if once or stopping.wait(self.config.poll):
                        break
            finally:
                follower.close()
            keep()
