"""Positions that the database surely has: only higher ones are written."""

from __future__ import annotations

import threading
from collections.abc import Mapping


class NotedPositions:
    """May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[tuple[str, int], int] = {}

    def grown(self, route: str, positions: Mapping[int, int]) -> dict[int, int]:
        with self._lock:
            return {
                partition: offset
                for partition, offset in positions.items()
                if offset > self._noted.get((route, partition), -1)
            }

    def add(self, route: str, positions: Mapping[int, int]) -> None:
        """Called when they are committed."""
        grown = self.grown(route, positions)
        with self._lock:
            for partition, offset in grown.items():
                known = self._noted.get((route, partition), -1)
                self._noted[route, partition] = max(known, offset)
