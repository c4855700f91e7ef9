"""A client whose events repeat keys, and belong to orders that are closed some time later, or never."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.chaos.client import Poster, event_id

ORDERS_AT_A_TIME = 40
NEVER_CLOSED_AFTER = 300
"""Events before those orders begin that nobody closes: the log may lose what comes before them."""
SOON = 100
"""A key that comes again soon is one of the last so many events'."""


@dataclass(frozen=True)
class Event:
    key: str
    order: str
    closes: bool


@dataclass
class Shopper(Poster):
    """Every second event has the key of an earlier one, half of these of one long ago. All threads feed all orders, so
    that events of an order come over several partitions; now and then one that was closed gets more."""

    pause: float = 0.2
    rng: random.Random = field(default_factory=random.Random)
    events: dict[str, Event] = field(default_factory=dict)
    """All that were ever made, by their ids."""
    _keys: list[str] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)
    _never_closed: list[str] = field(default_factory=list)
    _closed: list[str] = field(default_factory=list)
    _closing: list[str] = field(default_factory=list)
    """Orders that the next events close."""

    def event(self, sender: str, number: int) -> dict[str, object]:
        with self._lock:
            made = Event(self._choose_key(number), *self._choose_order(number))
            self._keys.append(made.key)
            self.events[event_id(number)] = made
        status = "closed" if made.closes else "open"
        return {**super().event(sender, number), "key": made.key, "order": made.order, "status": status}

    def close(self, orders: Iterable[str]) -> None:
        """Close these orders: raises unless it gets a 200 for all of them."""
        todo = sorted(orders)
        with self._connect() as http:
            for at in range(0, len(todo), 50):
                self._closing = todo[at : at + 50]
                numbers = self._take_numbers(len(self._closing))
                self._post(http, "closing", numbers, bulk=True).raise_for_status()

    def _choose_key(self, number: int) -> str:
        if not self._keys or self.rng.random() < 0.5:
            return f"key-{number}"
        return self.rng.choice(self._keys[-SOON:] if self.rng.random() < 0.5 else self._keys)

    def _choose_order(self, number: int) -> tuple[str, bool]:
        if self._closing:
            return self._closing.pop(0), True
        chance = self.rng.random()
        if chance < 0.05 and number > NEVER_CLOSED_AFTER:
            if not self._never_closed or self.rng.random() < 0.2:
                self._never_closed.append(f"never-closed-{number}")
            return self.rng.choice(self._never_closed), False
        if chance < 0.07 and self._closed:
            # What comes behind the closing event begins a new group of the same key.
            self._open.append(self._closed.pop(self.rng.randrange(len(self._closed))))
            return self._open[-1], False
        if len(self._open) < ORDERS_AT_A_TIME:
            self._open.append(f"order-{number}")
            return self._open[-1], False
        if chance < 0.85:
            return self.rng.choice(self._open), False
        self._closed.append(self._open.pop(self.rng.randrange(len(self._open))))
        return self._closed[-1], True
