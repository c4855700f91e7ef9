"""Groups events into requests: those of one client and user together, in the order in which they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from penstock.destinations.ga4 import limits
from penstock.destinations.ga4.staged_events import Staged
from penstock.destinations.sending.verbatim_json import dumps

WINDOW = 5_000
"""How many events are grouped by owner at a time: as many are held in memory."""


@dataclass(frozen=True)
class Request:
    events: Sequence[Staged]

    @property
    def body(self) -> bytes:
        first = self.events[0].event
        about = {"client_id": first.client_id, "user_id": first.user_id, "user_properties": first.properties or None}
        known = {key: value for key, value in about.items() if value is not None}
        whole = {**known, "events": [staged.event.body() for staged in self.events]}
        return dumps(whole).encode()

    def one_by_one(self) -> list[Request]:
        return [Request([staged]) for staged in self.events]


def requests(events: Iterable[Staged], most: int = limits.MAX_EVENTS) -> Iterator[Request]:
    """In the order of their first events. All that is about one client, or about one user, keeps its order."""
    waiting = iter(events)
    while window := list(islice(waiting, WINDOW)):
        for own in _by_owner(window):
            for start in range(0, len(own), most):
                yield from _small_enough(Request(own[start : start + most]))


def _by_owner(events: Iterable[Staged]) -> list[list[Staged]]:
    """Events that can share requests. Once a client or a user has an event of another owner (another user of the
    client, or other properties), what follows of the former owner goes behind that one."""
    groups: list[list[Staged]] = []
    newest: dict[tuple[str, str | None], list[Staged]] = {}
    for staged in events:
        event = staged.event
        whose = [(kind, each) for kind, each in (("client", event.client_id), ("user", event.user_id)) if each]
        group = newest.get(whose[0])
        if group is None or group[0].event.owner != event.owner or any(newest.get(each) is not group for each in whose):
            group = []
            groups.append(group)
        group.append(staged)
        newest.update(dict.fromkeys(whose, group))
    return groups


def _small_enough(request: Request) -> Iterator[Request]:
    if len(request.events) == 1 or len(request.body) <= limits.MAX_BODY:
        yield request
        return
    middle = len(request.events) // 2
    yield from _small_enough(Request(request.events[:middle]))
    yield from _small_enough(Request(request.events[middle:]))
