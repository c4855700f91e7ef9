"""Signals that come while a process is being started wait until it is known."""

from __future__ import annotations

import signal

import pytest

from penstock.demo.held_signals import HeldSignals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_and_then_does_what_it_does_otherwise(number: signal.Signals) -> None:
    came: list[int] = []
    before = signal.signal(number, lambda found, _: came.append(found))
    try:
        held = HeldSignals()
        signal.raise_signal(number)
        assert came == []
        held.release()
        assert came == [number]
        signal.raise_signal(number)
        assert came == [number, number]
    finally:
        signal.signal(number, before)
