"""Stopping in two steps."""

from __future__ import annotations

import signal

import pytest

from penstock.cli._support.signals import stop_in_two_steps
from penstock.testing.waiting import HANG, eventually


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains_and_the_second_hurries(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    with stop_in_two_steps(30.0) as (stopping, hurry):
        signal.raise_signal(number)
        assert stopping.wait(HANG)
        said = eventually(lambda: capfd.readouterr().err, "it says what it does")
        assert said == "draining, up to 30 s; press Ctrl-C again to stop now\n"
        assert not hurry.is_set()
        signal.raise_signal(number)
        assert hurry.wait(HANG)
        assert eventually(lambda: capfd.readouterr().err, "it says so") == "stopping now\n"
    assert signal.getsignal(number) is before
