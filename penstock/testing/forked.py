"""Processes of tests, forked from a server that has nothing else to do.

To start a Python and to load what a component needs takes most of two seconds of work, and a suite starts dozens. Who
names modules by ``multiprocessing.set_forkserver_preload`` before the first of them has these loaded once for all.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from typing import Any

from penstock import faults


def make_process(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A process, not started yet, with the environment that this one has now: its faults too."""
    context = multiprocessing.get_context("forkserver")
    return context.Process(target=_begin, args=(dict(os.environ), target, arguments))


def _begin(environment: Mapping[str, str], target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    faults.arm()
    target(*arguments)
