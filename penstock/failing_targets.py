"""What the engine tells other processes about targets that do not take what they are given: a small file per route.

The keys that fail are shown to people. Sources refuse what comes while the route says so: who sends then keeps it, and
tries again. What an engine said that is silent since does not count: the log takes records without an engine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from penstock.boot import boot_id

SILENT = 60.0
"""Seconds after which what was said counts no more; it is said anew every second."""
MOST_KEYS = 100
"""So many keys are named, those first that fail for longest."""
_FOLDER = "failing"


@dataclass(frozen=True)
class FailingKey:
    name: str
    seconds: float
    """For how long."""
    failures: int
    reason: str


@dataclass(frozen=True)
class FailingTarget:
    route: str
    sources: Sequence[str]
    count: int
    """How many keys fail."""
    keys: Sequence[FailingKey]
    refuse: str = ""
    """Why sources are to refuse what comes; empty if they are not."""
    retry_after: float = 0.0
    """Seconds after which a sender may try again."""
    at: float = field(default_factory=time.monotonic)
    boot: str = field(default_factory=boot_id)
    """The start of the machine from which ``at`` counts."""


def tell_failing(directory: Path, route: str, target: FailingTarget | None) -> None:
    """``None``: it takes everything. Called about once a second."""
    path = directory / _FOLDER / f"{route}.json"
    if target is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(asdict(target)))
    scratch.replace(path)


def failing_targets(directory: Path) -> list[FailingTarget]:
    """What fails now."""
    found = []
    for path in sorted((directory / _FOLDER).glob("*.json")):
        try:
            told = json.loads(path.read_bytes())
            target = FailingTarget(**{**told, "keys": [FailingKey(**key) for key in told["keys"]]})
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if target.boot == boot_id() and 0 <= time.monotonic() - target.at <= SILENT:
            found.append(target)
    return found
