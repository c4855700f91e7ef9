"""Free loopback ports."""

from __future__ import annotations

import random
import socket

CHOSEN_FROM = range(15_000, 32_000)
"""Below those that the system gives to connections as their near end: one of them may be in use when it is needed."""


def free_port() -> int:
    """A port that nobody listens on now, and that is given to nobody who asked for none in particular."""
    # Hypothesis gives every process the same random numbers.
    chance = random.SystemRandom()
    for _ in CHOSEN_FROM:
        port = chance.choice(CHOSEN_FROM)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"hardly any of the ports {CHOSEN_FROM.start} to {CHOSEN_FROM.stop} is free")


def listens(port: int) -> bool:
    """Whether somebody answers on the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
