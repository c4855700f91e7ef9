"""A stop that does not wait for Spark when there is nothing to deliver.

Spark takes half a minute to start on a busy machine and does not react meanwhile, so a stop would wait for a start that
nobody wants any more. Ending Spark then leaves nothing that a kill would not leave as well.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

import psutil
from sqlalchemy.exc import SQLAlchemyError

from penstock.config.pipeline_config import RouteMode
from penstock.engine import events
from penstock.engine.delivery.route_positions import positions
from penstock.engine.ledger import RouteState
from penstock.engine.pipeline import Pipeline
from penstock.errors import PenstockError

PATIENCE = 2.0
"""Seconds that a running Spark gets to end by itself when there is nothing to deliver."""
CHECK_EVERY = 0.1


def nothing_to_deliver(pipeline: Pipeline, once: bool = False) -> bool:
    """Whether a stop has nothing to wait for: every stream route has delivered what it can. A ``once`` run must report
    that it did not finish if tables wait."""
    try:
        return not (once and has_waiting_tables(pipeline)) and all(
            _is_halted(pipeline, name)
            or not (any(position.lag for position in positions(pipeline, name)) or pipeline.ledger.commands(name))
            for name, route in pipeline.config.routes.items()
            if route.mode is RouteMode.STREAM
        )
    except (PenstockError, OSError, SQLAlchemyError):
        return False


def has_waiting_tables(pipeline: Pipeline) -> bool:
    return any(pipeline.ledger.waiting_tables(route) for route in pipeline.config.routes)


@contextmanager
def exit_early_on_stop(
    stopping: Event, may_leave: Callable[[], bool], runs: Event, leave: Callable[[], None]
) -> Iterator[None]:
    """Inside, a stop calls ``leave``, which ends this process, as soon as it ``may_leave``: at once while Spark starts,
    after ``PATIENCE`` seconds when it ``runs``. A body that finishes by itself is not interrupted."""
    done = Event()
    watch = threading.Thread(target=_watch, args=(stopping, may_leave, runs, leave, done), name="leaving", daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()


def _watch(stopping: Event, may_leave: Callable[[], bool], runs: Event, leave: Callable[[], None], done: Event) -> None:
    stopping.wait()
    while not done.is_set():
        # Asked again after the wait: a batch may have begun meanwhile.
        if may_leave() and not (runs.is_set() and done.wait(PATIENCE)) and may_leave():
            leave()
        done.wait(CHECK_EVERY)


def leave() -> None:
    """End this process and its children, before Spark's JVM can log that it lost its driver."""
    events.exited_early()
    logging.shutdown()
    for process in psutil.Process().children(recursive=True):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    os._exit(0)


def _is_halted(pipeline: Pipeline, route: str) -> bool:
    activity = pipeline.ledger.activity(route)
    return activity is not None and activity.state is RouteState.HALTED
