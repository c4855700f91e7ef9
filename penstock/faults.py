"""The one seam through which tests break Penstock at named points.

``reach("log.append.before_fsync")`` does nothing unless the environment names that point::

    PENSTOCK_FAULTS="log.append.before_fsync=kill"      kill -9 of this process the first time it is reached
    PENSTOCK_FAULTS="route.writing@3=kill,..."          the third time
    PENSTOCK_FAULTS="destination.write=raise"           an OSError there, once

With ``PENSTOCK_FAULTS_ONCE`` naming a folder, each fault happens once over all processes that share it, so that a
process which is started again after it died at a point gets past it. The environment is read once, at import: a
production process pays one dictionary look-up per point.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Action(StrEnum):
    KILL = "kill"
    RAISE = "raise"


class InjectedFault(OSError):
    """Raised at a point that was asked to ``raise``."""


@dataclass
class _Fault:
    action: Action
    countdown: int


def parse(text: str) -> dict[str, _Fault]:
    """``point[@nth]=action`` separated by commas; an empty text means no faults."""
    found: dict[str, _Fault] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        where, _, action = item.partition("=")
        point, _, nth = where.partition("@")
        found[point] = _Fault(Action(action or "kill"), int(nth or 1))
    return found


_armed: dict[str, _Fault] = {}
_once: str | None = None


def arm() -> None:
    """Read the environment. A forked process with another environment calls it again."""
    global _armed, _once
    _armed = parse(os.environ.get("PENSTOCK_FAULTS", ""))
    _once = os.environ.get("PENSTOCK_FAULTS_ONCE")


def reach(point: str) -> None:
    """Execution has reached ``point``: inject the fault that is armed there, if any."""
    fault = _armed.get(point)
    if fault is None:
        return
    fault.countdown -= 1
    if fault.countdown != 0 or not _first_of_all(point):
        return
    if fault.action is Action.KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    raise InjectedFault(f"injected at {point}")


def _first_of_all(point: str) -> bool:
    if _once is None:
        return True
    try:
        Path(_once, point).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


arm()
