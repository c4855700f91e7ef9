"""Options of the step ``pick``."""

from __future__ import annotations

from pydantic import Field

from penstock.steps.fields import FieldPath
from penstock.steps.omit.config import OmitConfig


class PickConfig(OmitConfig):
    """Fields to keep."""

    fields: tuple[FieldPath, ...] = Field(
        min_length=1,
        description="Fields to keep: `id`, `user.name` or `/user/name`; `a\\.b` is a name with a dot.",
    )
