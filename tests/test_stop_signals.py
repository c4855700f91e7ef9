"""A signal that comes at the worst moment: while the main thread holds the lock of the event that it sets."""

from __future__ import annotations

import os
import signal
import time
from threading import Event, Thread

import pytest

from penstock.stop_signals import STOP_SIGNALS, call_on_stop_signals
from penstock.testing.waiting import HANG, eventually

ROUNDS = 30


def _send(number: signal.Signals, after: float) -> None:
    time.sleep(after)
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_is_heard_whatever_the_main_thread_does_with_the_event(number: signal.Signals) -> None:
    heard = 0
    for each in range(ROUNDS):
        stopping = Event()
        with call_on_stop_signals(stopping.set):
            Thread(target=_send, args=(number, 0.001 + each * 1e-5)).start()
            deadline = time.monotonic() + HANG
            while not stopping.wait(0) and time.monotonic() < deadline:
                pass
        heard += stopping.is_set()
    assert heard == ROUNDS


def test_every_signal_counts_and_the_handlers_of_before_are_put_back() -> None:
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    heard: list[int] = []
    with call_on_stop_signals(lambda: heard.append(1)):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        eventually(lambda: len(heard) == 2, "both are heard")
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
