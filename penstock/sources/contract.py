"""What a source is, and what it owes.

A source puts entries into the log and acknowledges them to whoever sent them only after the log has them durably. It
knows nothing of routes and destinations. Input that it cannot read is not refused and not dropped: it goes into the log
as a record with the header ``malformed``, so every route accounts for it as failed, with its original bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Generic, TypeVar

from penstock.config.component import SourceConfig

__all__ = ["AnySource", "Source", "SourceConfig", "SourceContext"]


@dataclass(frozen=True)
class SourceContext:
    """Where a source runs: its name in the config, the log's directory, and a folder for its own positions."""

    name: str
    log_dir: Path
    log_options: str
    """The log's config as JSON (segment size, fsync mode ...)."""
    state_dir: Path
    patience: float | None = None
    """Seconds after which it gives up on what it reads from, if that stays unavailable; None: it waits for ever."""


ConfigT = TypeVar("ConfigT", bound=SourceConfig)


class Source(ABC, Generic[ConfigT]):
    """A process of its own, started by the supervisor.

    ``run`` returns when ``stopping`` is set (everything taken so far is in the log) or, for a source with an end and
    ``once`` given, when it has reached it. It may be killed at any moment and run again: an acknowledged entry is never
    lost, and a reader source continues from its own last position. It waits while what it reads from
    is unavailable, and raises ``SourceUnavailable`` only if its context says how long.
    """

    def __init__(self, config: ConfigT, context: SourceContext) -> None:
        self.config = config
        self.context = context

    @abstractmethod
    def run(self, stopping: Event, once: bool = False) -> None: ...

    def check(self) -> str | None:
        """For ``penstock doctor``: what it found where it reads, in a sentence; None: there is nothing to check.

        Raises ``PenstockError`` for what must be fixed before ``run``. Changes nothing, and may run beside it.
        """
        return None


AnySource = Source[Any]
