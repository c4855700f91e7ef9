"""Runs a pipeline in a folder to the end of what its log has, in the process of the tests.

Spark takes seconds to start: what need not die shares one JVM with the tests before it. Sources are not run.
"""

from __future__ import annotations

import io
import logging
from pathlib import Path
from threading import Event

from penstock.config.loading import load
from penstock.engine.engine import Engine
from penstock.engine.pipeline import Pipeline


def run_to_end(folder: Path) -> str:
    """Deliver everything, as far as that can be; what the engine said about it."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logger = logging.getLogger("penstock")
    opened = Pipeline.open(load(folder / "pipeline.yaml"))
    logger.addHandler(handler)
    try:
        Engine(opened, once=True).run(Event())
    finally:
        logger.removeHandler(handler)
        opened.ledger.close()
    return said.getvalue()
