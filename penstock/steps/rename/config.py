"""Options of the step ``rename``."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from penstock.config.component import StepConfig
from penstock.json.paths import Path
from penstock.steps.fields import FieldPath, field_path, lifted


class RenameConfig(StepConfig):
    """Old names and new ones."""

    main_option: ClassVar[str | None] = "fields"

    fields: dict[FieldPath, FieldPath] = Field(
        min_length=1,
        description="Old path to new name. A name without dot or leading slash stays in the same object; a path moves.",
    )

    @model_validator(mode="before")
    @classmethod
    def _lift_bare_map(cls, value: Any) -> Any:
        return lifted(value)

    @field_validator("fields")
    @classmethod
    def _one_field_per_name(cls, value: dict[str, str]) -> dict[str, str]:
        taken: dict[Path, str] = {}
        for old, new in value.items():
            other = taken.setdefault(new_path(old, new), old)
            if other != old:
                raise ValueError(f"'{other}' and '{old}' cannot both become '{new}'")
        return value


def new_path(old: str, new: str) -> Path:
    """Where the field ``old`` goes: a single name stays beside it, a path counts from the record."""
    path = field_path(new)
    return path if len(path) > 1 or new.startswith("/") else (*field_path(old)[:-1], *path)
