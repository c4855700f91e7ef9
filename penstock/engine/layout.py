"""Where a pipeline keeps its things under ``data_dir``. The one place that knows these names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    root: Path

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def ledger(self) -> Path:
        return self.root / "ledger.db"

    @property
    def failed(self) -> Path:
        return self.root / "failed"

    @property
    def run(self) -> Path:
        """Locks, pids and scratch space of running processes."""
        return self.root / "run"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def checkpoint(self, route: str, scope: str, generation: int = 0) -> Path:
        """A checkpoint is worth something only with the ledger that it grew with, and until the route is moved back."""
        turn = f"-{generation}" if generation else ""
        return self.checkpoints / f"{route}-{scope[:8]}{turn}"

    @property
    def archive(self) -> Path:
        """Where `archive: true` puts its files unless it names another folder."""
        return self.root / "archive"

    @property
    def own(self) -> list[Path]:
        """Everything of a pipeline that is there."""
        names = ("log", "failed", "run", "checkpoints", "stage", "sources", self.archive.name, f"{self.ledger.name}*")
        return [path for name in names for path in self.root.glob(name)]

    def stage(self, route: str) -> Path:
        return self.root / "stage" / route

    def stage_of_waiting(self, route: str) -> Path:
        """Where a table's part lies while the table is tried again; no route's name begins like that."""
        return self.root / "stage" / f".waiting-{route}"

    def stage_anew(self, route: str) -> Path:
        """Where a table's part is made anew, beside the batch that is being delivered."""
        return self.root / "stage" / f".anew-{route}"

    def source_state(self, source: str) -> Path:
        return self.root / "sources" / source
