"""Breaks off what a component does at a point that it names with ``penstock.faults.reach``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock import faults
from penstock.errors import PenstockError


@contextmanager
def crash_at(point: str) -> Iterator[None]:
    """The block ends with an error at ``point``; at ``point@3`` when it gets there the third time. One that never gets
    there fails the test: nothing was tried."""
    before, faults._armed = faults._armed, faults.parse(f"{point}=raise")
    (fault,) = faults._armed.values()
    try:
        yield
    except (PenstockError, faults.InjectedFault):
        if fault.countdown > 0:
            raise
    else:
        pytest.fail(f'it did not end at faults.reach("{point}")')
    finally:
        faults._armed = before
