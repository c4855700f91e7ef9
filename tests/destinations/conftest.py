"""Tests of destinations find their database here."""

from __future__ import annotations

from tests.support.database import Database

__all__ = ["Database"]
