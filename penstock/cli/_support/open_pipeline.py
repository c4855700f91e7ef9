"""Opens the pipeline of the path on the command line. Imports what it needs only when it is called."""

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


def read_config_with_warnings(path: Path) -> PipelineConfig:
    """Read the config, and print its warnings on stderr."""
    from penstock.config.loading import load_with_remarks

    loaded = load_with_remarks(path)
    for remark in loaded.remarks:
        note(f"warning: {remark}")
    return loaded.config


@contextmanager
def open_pipeline(path: Path, create: bool = False) -> Iterator[Pipeline]:
    """Open a pipeline that ran before, to inspect or repair it. Raises for one that never ran, unless its ledger is to
    be created."""
    from penstock.engine.pipeline import Pipeline

    pipeline = Pipeline.open(read_config(path), create=create)
    try:
        yield pipeline
    finally:
        pipeline.ledger.close()
