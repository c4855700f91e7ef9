"""What the config tests share: a small pipeline that is right, and a way to read a text as a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from penstock.config.loading import load
from penstock.config.pipeline_config import PipelineConfig

Read = Callable[..., PipelineConfig]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Reads a text as ``pipeline.yaml`` in the current folder, with exactly the variables that are given."""
    monkeypatch.chdir(tmp_path)

    def read(text: str | bytes, variables: Mapping[str, str] | None = None) -> PipelineConfig:
        Path("pipeline.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
        return load("pipeline.yaml", variables or {})

    return read
