"""What each consumer still needs: per partition, the lowest offset that it may read again.

One small file per consumer, replaced atomically. Retention and compaction stay below the lowest hold of all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from penstock.durable import make_directory
from penstock.errors import LogError
from penstock.log.format.log_files import replace_durably

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


class Holds:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def set(self, consumer: str, offsets: Mapping[int, int]) -> None:
        """Replace the consumer's holds, durably."""
        make_directory(self._directory)
        content = json.dumps({str(partition): offset for partition, offset in sorted(offsets.items())})
        replace_durably(self._path(consumer), content.encode())

    def get(self) -> dict[str, dict[int, int]]:
        """The holds of every consumer that ever set any."""
        return {path.stem: _read(path) for path in sorted(self._directory.glob("*.json"))}

    def remove(self, consumer: str) -> None:
        """Forget a consumer that will not come back."""
        self._path(consumer).unlink(missing_ok=True)

    def highest(self, partition: int) -> int:
        """The highest hold on a partition: offsets below it were given to someone. 0 if there is none."""
        return max((offsets.get(partition, 0) for offsets in self.get().values()), default=0)

    def _path(self, consumer: str) -> Path:
        if not _NAME.fullmatch(consumer):
            raise LogError(
                "PEN-LOG-010", f"'{consumer}' is no name for a consumer.", "Use letters, digits, '_', '-' and '.'."
            )
        return self._directory / f"{consumer}.json"


def _read(path: Path) -> dict[int, int]:
    try:
        return {int(partition): int(offset) for partition, offset in json.loads(path.read_bytes()).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise LogError(
            "PEN-LOG-007", f"{path} cannot be read: {error}.", "Restore it, or remove it to give up what it holds."
        ) from None
