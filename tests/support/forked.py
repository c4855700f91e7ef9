"""Processes of tests that begin with everything loaded: they are forked from one that has nothing else to do.

To start a Python and to load what a source needs takes most of two seconds of work, and hundreds of them are started.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from typing import Any

from penstock import faults

_PRELOADED = [
    "penstock.engine.pipeline",
    "penstock.engine.delivery.deliver_batch",
    "penstock.sources.file.source",
    "penstock.sources.http.source",
    "penstock.sources.postgres.source",
    "penstock.destinations.duckdb.destination",
]


def forked(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A process, not started yet, with the environment that this one has now: its faults too."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context.Process(target=_begin, args=(dict(os.environ), target, arguments))


def _begin(environment: Mapping[str, str], target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    faults.arm()
    target(*arguments)
