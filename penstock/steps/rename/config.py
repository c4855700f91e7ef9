"""Options of the step ``rename``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator

from penstock.config.component import StepConfig
from penstock.json.paths import Path
from penstock.steps.fields import FieldPath, field_path


class RenameConfig(StepConfig):
    """Old names and new ones."""

    main_option: ClassVar[str | None] = "fields"
    bare_map: ClassVar[bool] = True

    fields: dict[FieldPath, FieldPath] = Field(
        min_length=1,
        description="Old path to new name. A name without dot or leading slash stays in the same object; a path moves.",
    )

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
