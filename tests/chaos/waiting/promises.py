"""What a client may count on that knows nothing of the log: what it sent, and what was acknowledged before that."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from tests.chaos.project import ROUTE
from tests.chaos.waiting.project import ORDERS, TIMED, UNIQUE
from tests.chaos.waiting.shopper import Shopper


def broken_promises(shopper: Shopper, rows: Mapping[str, Counter[str]]) -> Iterator[tuple[str, set[str]]]:
    """Each promise that is broken, and the events or keys for which it is."""
    acknowledged, sent = shopper.acknowledged.keys(), shopper.sent.keys()
    orders = _Orders(shopper)
    for promise, found in (
        ("an acknowledged event is in the plain table", acknowledged - rows[ROUTE].keys()),
        ("an acknowledged event goes on after a while", acknowledged - rows.get(TIMED, rows[ROUTE]).keys()),
        ("nothing is there that was not sent", {each for counts in rows.values() for each in counts.keys() - sent}),
        ("a key is there once", _keys_not_once(shopper, rows[UNIQUE])),
        ("of a key what was acknowledged first is there", _not_first(shopper, rows[UNIQUE])),
        (
            "an event is there if its order was closed after it",
            {each for each in acknowledged - rows[ORDERS].keys() if orders.surely_closed(each)},
        ),
        (
            "an event is not there if its order is open",
            {each for each in rows[ORDERS] if not orders.perhaps_closed(each)},
        ),
    ):
        if found:
            yield promise, found


def _keys_not_once(shopper: Shopper, rows: Counter[str]) -> set[str]:
    found = Counter(shopper.events[each].key for each in rows.elements())
    return {key for key in (shopper.events[each].key for each in shopper.acknowledged) if found[key] != 1}


def _not_first(shopper: Shopper, rows: Counter[str]) -> set[str]:
    """Events in the table that were sent when another of their key had been acknowledged."""
    earliest: dict[str, int] = {}
    for event_id, moment in shopper.acknowledged.items():
        key = shopper.events[event_id].key
        earliest[key] = min(moment, earliest.get(key, moment))
    return {each for each in rows if shopper.sent[each] > earliest.get(shopper.events[each].key, shopper.sent[each])}


class _Orders:
    def __init__(self, shopper: Shopper) -> None:
        self._shopper = shopper
        self._closing: dict[str, list[str]] = defaultdict(list)
        for event_id, event in shopper.events.items():
            if event.closes:
                self._closing[event.order].append(event_id)

    def surely_closed(self, event_id: str) -> bool:
        """Whether a closing event was acknowledged that was sent after this one was acknowledged, or is this one."""
        sent, acknowledged = self._shopper.sent, self._shopper.acknowledged
        return any(
            close in acknowledged and (close == event_id or sent[close] > acknowledged[event_id])
            for close in self._closing_of(event_id)
        )

    def perhaps_closed(self, event_id: str) -> bool:
        """Whether there is a closing event that was not acknowledged before this one was sent."""
        sent, acknowledged = self._shopper.sent, self._shopper.acknowledged
        return any(
            close == event_id or acknowledged.get(close, sent[event_id]) >= sent[event_id]
            for close in self._closing_of(event_id)
        )

    def _closing_of(self, event_id: str) -> list[str]:
        return self._closing[self._shopper.events[event_id].order]
