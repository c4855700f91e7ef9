"""Compaction in the background: in its own thread, one run at a time, and only of partitions where it is worth it.

The end of the process may interrupt a run without harm, so an engine that stops does not wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from penstock.engine import events
from penstock.errors import PenstockError
from penstock.log.local_log import LocalLog


class BackgroundCompaction:
    def __init__(self, log: LocalLog) -> None:
        self._log = log
        self._running: threading.Thread | None = None

    def start(self, floors: Mapping[int, int]) -> None:
        """Compact what is due, unless the last run is still going. Returns at once."""
        if self._running is None or not self._running.is_alive():
            self._running = threading.Thread(target=self.run, args=(floors,), name="compaction", daemon=True)
            self._running.start()

    def run(self, floors: Mapping[int, int]) -> None:
        from penstock.log.maintenance.compaction import compact, is_due

        for partition, floor in floors.items():
            try:
                if not is_due(self._log, partition, floor):
                    continue
                [done] = compact(self._log, {partition: floor}, [partition])
            except (PenstockError, OSError) as error:
                # A disk that is not freed does not stop delivery.
                events.compaction_failed(partition, str(error))
            else:
                events.log_compacted(partition, done.dropped, done.bytes_before - done.bytes_after)
