"""Penstock: one pipeline for events, telemetry, table changes and state reports, on Apache Spark.

What is named here, and what a component is built on (``examples/plugin``), is the public face; the rest may change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from penstock.config.loading import load
    from penstock.engine.engine import Engine
    from penstock.engine.operate.status import status
    from penstock.engine.pipeline import Pipeline
    from penstock.errors import PenstockError
    from penstock.record import Mode, Op, Record

_HOMES = {
    "Engine": "penstock.engine.engine",
    "Mode": "penstock.record",
    "Op": "penstock.record",
    "PenstockError": "penstock.errors",
    "Pipeline": "penstock.engine.pipeline",
    "Record": "penstock.record",
    "load": "penstock.config.loading",
    "status": "penstock.engine.operate.status",
}

__all__ = ["Engine", "Mode", "Op", "PenstockError", "Pipeline", "Record", "load", "status"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is: ``penstock --help`` pays for none of it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
