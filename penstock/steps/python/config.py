"""Options of the step ``python``. The file is read and looked into when the config is, but nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from penstock.config.component import StepConfig
from penstock.config.value_types.config_paths import LocalPath


class Shape(StrEnum):
    """What the function takes and gives back."""

    ARROW = "arrow"
    PANDAS = "pandas"


class PythonConfig(StepConfig):
    """A function in a file."""

    file: LocalPath = Field(description="The file that the function is in, such as `steps.py`; relative to this file.")
    function: str = Field(min_length=1, description="The function's name.")
    batch: Shape | None = Field(
        default=None,
        description="What the function takes: `arrow` (`pyarrow.Table`) or `pandas` (`pandas.DataFrame`). By default"
        " what its parameter's annotation says, and `arrow` if there is none.",
    )

    @model_validator(mode="after")
    def _there(self) -> Self:
        try:
            tree = ast.parse(self.file.read_bytes())
        except OSError as error:
            raise ValueError(f"{self.file} cannot be read: {error.strerror}") from None
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"{self.file} is not Python: {error}") from None
        if self.function not in _names(tree):
            raise ValueError(f"{self.file} has no function '{self.function}'")
        return self


def _names(tree: ast.Module) -> Iterator[str]:
    """Names that a module has at its top, as far as a look at its text can tell."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
