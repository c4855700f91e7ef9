"""The paths of a pipeline under ``data_dir``. Only this module knows these names."""

from __future__ import annotations

from pathlib import Path


class Layout:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "log"
        self.ledger = root / "ledger.db"
        self.failed = root / "failed"
        self.run = root / "run"
        """Locks, pids and scratch space of running processes."""
        self.checkpoints = root / "checkpoints"
        self.archive = root / "archive"
        """Where `archive: true` puts its files unless it names another folder."""

    def checkpoint(self, route: str, scope: str, generation: int = 0) -> Path:
        return self.checkpoints / checkpoint_name(route, scope, generation)

    @property
    def own(self) -> list[Path]:
        """All paths of the pipeline that exist."""
        names = ("log", "failed", "run", "checkpoints", "stage", "sources", self.archive.name, f"{self.ledger.name}*")
        return [path for name in names for path in self.root.glob(name)]

    def stage(self, route: str) -> Path:
        return self.root / "stage" / route

    def waiting_stage(self, route: str) -> Path:
        """Where a table's part lies while the table is retried. No route name begins with a dot."""
        return self.root / "stage" / f".waiting-{route}"

    def retry_stage(self, route: str) -> Path:
        """Where a table's part is staged again, beside the current batch."""
        return self.root / "stage" / f".anew-{route}"

    def source_state(self, source: str) -> Path:
        return self.root / "sources" / source


def set_aside_mark(stage: Path) -> Path:
    """A file beside what a route stages. No route name has a dot."""
    return stage.with_name(f"{stage.name}.set-aside")


def checkpoint_name(route: str, scope: str, generation: int) -> str:
    """A checkpoint is valid only with the ledger it was written with, and until the route is moved back."""
    return f"{route}-{scope[:8]}" + (f"-{generation}" if generation else "")
