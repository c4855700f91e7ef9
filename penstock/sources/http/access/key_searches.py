"""The budget of senders without a token, whose bodies are searched for a key.

Such a body has to be read, unpacked and searched before anybody knows who sends it. Each address has an allowance of
searches that find nothing, which comes back with time; and no more than so many wait for their search. An address from
which a good key has come is refused nothing, because a neighbour's bad keys must not cost others behind that address
theirs: past its allowance, who has sent a bad one waits for the answer instead. A trusted proxy, which brings all of
its clients, has no such limit.

Over the budget the answer is 429, which Segment's libraries send again; after 401 they drop what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TypeVar

from penstock.sources.http import responses
from penstock.sources.http.responses import Refused

PER_ADDRESS = 64
"""Searches in vain that an address has at first."""
BACK_PER_SECOND = 8
"""How many of them it gets back."""
MOST_WAITING = 256
"""Bodies that have arrived and wait to be searched."""
WAIT_SECONDS = 0.1
"""How long a bad key waits for its answer, from an address that has sent good ones and many bad ones."""
REMEMBERED = 65_536
"""Addresses of each kind; the one that was heard of least recently is forgotten first."""

_Value = TypeVar("_Value")


class KeySearches:
    """Use it on the event loop's thread only. ``is_proxy`` tells addresses that many clients share by design."""

    def __init__(self, is_proxy: Callable[[str], bool], clock: Callable[[], float] = monotonic) -> None:
        self._is_proxy = is_proxy
        self._clock = clock
        self._good: dict[str, None] = {}
        self._spent: dict[str, tuple[float, float]] = {}
        """Per address, what is gone of its allowance, and when that was worked out."""
        self._waiting = 0

    def spend(self, address: str) -> None:
        """Take one search from the allowance, before anything is read; ``Refused`` if none is left."""
        if self._is_proxy(address):
            return
        now = self._clock()
        spent, since = self._spent.get(address, (0.0, now))
        spent = max(0.0, spent - (now - since) * BACK_PER_SECOND) + 1
        if spent > PER_ADDRESS and address not in self._good:
            raise Refused(responses.TOO_MANY_SEARCHES)
        _remember(self._spent, address, (min(spent, PER_ADDRESS), now))

    @contextmanager
    def waiting(self, address: str) -> Iterator[None]:
        """Wait for the search inside the block; ``Refused`` if too many do."""
        if self._waiting >= MOST_WAITING and not self._is_free(address):
            raise Refused(responses.TOO_MANY_SEARCHES)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def mark_good(self, address: str) -> None:
        """A good key has come from there: the search was not in vain."""
        if address in self._spent:
            spent, since = self._spent[address]
            self._spent[address] = (spent - 1, since)
        _remember(self._good, address, None)

    def wait_after_bad_key(self, address: str) -> float:
        """Seconds until a search that was in vain should be answered."""
        spent, _ = self._spent.get(address, (0.0, 0.0))
        return WAIT_SECONDS if address in self._good and spent > PER_ADDRESS - 1 else 0.0

    def _is_free(self, address: str) -> bool:
        return address in self._good or self._is_proxy(address)


def _remember(kept: dict[str, _Value], address: str, value: _Value) -> None:
    kept.pop(address, None)
    kept[address] = value
    if len(kept) > REMEMBERED:
        del kept[next(iter(kept))]
