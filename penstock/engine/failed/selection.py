"""Selects failed entries, and drops them for good."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from penstock.engine.failed.failed_store import FailedEntry
from penstock.engine.pipeline import Pipeline
from penstock.engine.route_sources import replay_source
from penstock.errors import PenstockError


@dataclass(frozen=True)
class Choice:
    """Matches the entries that fit every given criterion; all entries if none is given."""

    route: str | None = None
    step: str | None = None
    code: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ids: Collection[int] = ()

    def matches(self, entry: FailedEntry) -> bool:
        return (
            (self.step is None or entry.step == self.step)
            and (self.code is None or entry.code == self.code)
            and (self.since is None or entry.failed_at >= self.since)
            and (self.until is None or entry.failed_at < self.until)
            and (not self.ids or entry.id in self.ids)
        )


def open_entries(pipeline: Pipeline, choice: Choice) -> Iterator[FailedEntry]:
    """The entries that nobody has replayed or dropped, route by route, oldest first."""
    for route in chosen_routes(pipeline, choice.route):
        settled = pipeline.ledger.settled_entries(route)
        for entry in pipeline.failed_store.read(route, pipeline.ledger.failed_extent(route)):
            if entry.id not in settled and choice.matches(entry):
                yield entry


def chosen_routes(pipeline: Pipeline, route: str | None) -> list[str]:
    """Routes that can have failed entries, also those that the config no longer has."""
    known = list(dict.fromkeys([*pipeline.config.routes, *pipeline.ledger.routes()]))
    if route is None:
        return known
    if route not in known:
        raise PenstockError("PEN-ENG-005", f"there is no route '{route}'.", f"Routes: {', '.join(known)}.")
    return [route]


def find_entry(pipeline: Pipeline, route: str, number: int) -> tuple[FailedEntry, str | None]:
    """One entry, and what was done with it: ``replayed``, ``dropped`` or nothing yet."""
    (name,) = chosen_routes(pipeline, route)
    for entry in pipeline.failed_store.read(name, pipeline.ledger.failed_extent(name)):
        if entry.id == number:
            return entry, pipeline.ledger.settled_entries(name).get(number)
    raise PenstockError(
        "PEN-ENG-008", f"route '{route}' has no failed entry {number}.", f"See: penstock failed list --route {route}"
    )


def drop(pipeline: Pipeline, route: str, ids: Collection[int]) -> int:
    """Note that nobody will replay these entries; returns how many. They stay in the file, and in the counts."""
    # A replay holds this writer: an entry is either replayed or dropped, never both.
    with pipeline.log.writer(replay_source(route)) as replays:
        under_way = pipeline.ledger.replay_under_way(route)
        if under_way is not None:
            pipeline.ledger.finish_replay(route, appended=replays.next_offset > under_way[1])
        settled = pipeline.ledger.settled_entries(route)
        left = [number for number in ids if number not in settled]
        if left:
            pipeline.ledger.settle_entries(route, left, "dropped")
        return len(left)
