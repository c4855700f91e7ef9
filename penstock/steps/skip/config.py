"""Options of the step ``skip``."""

from __future__ import annotations

from penstock.steps.where.config import WhereConfig


class SkipConfig(WhereConfig):
    """A condition."""
