"""From the path on the command line to an open pipeline. Imports what it needs when it is called, not before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli._support.screen import note

if TYPE_CHECKING:
    from penstock.config.pipeline_config import PipelineConfig
    from penstock.engine.pipeline import Pipeline


def read_config(path: Path) -> PipelineConfig:
    from penstock.config.loading import load

    return load(path)


def read_config_aloud(path: Path) -> PipelineConfig:
    """The config, with the remarks that there are on it said to the person at the terminal."""
    from penstock.config.loading import load_with_remarks

    loaded = load_with_remarks(path)
    for remark in loaded.remarks:
        note(f"warning: {remark}")
    return loaded.config


@contextmanager
def opened(path: Path, create: bool = False) -> Iterator[Pipeline]:
    """A pipeline that ran before, to look at or to repair. One that never ran is an error that says so, unless its
    ledger is to be made anew."""
    from penstock.engine.pipeline import Pipeline

    pipeline = Pipeline.open(read_config(path), create=create)
    try:
        yield pipeline
    finally:
        pipeline.ledger.close()
