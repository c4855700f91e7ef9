"""What the engine's tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="package", autouse=True)
def starts_quickly(fork_server: None) -> None:
    """Spark's Python processes are forked for engines that run in the process of the tests."""
