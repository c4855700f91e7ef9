"""Paths in a config are relative to the file they are written in, wherever Penstock is started from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo, WithJsonSchema

from penstock.config.component import ReadingContext


def _anchored(path: Path, info: ValidationInfo) -> Path:
    path = path.expanduser()
    if isinstance(info.context, ReadingContext):
        path = info.context.folder / path
    return Path(os.path.normpath(path))


LocalPath = Annotated[Path, AfterValidator(_anchored), WithJsonSchema({"type": "string", "examples": ["./data"]})]
"""A path on this machine: ``~`` is the home directory, a relative one starts at the config file's folder."""
