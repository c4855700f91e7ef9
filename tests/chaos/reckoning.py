"""The reckoning: what was promised and what is there, once all is delivered and everything has stopped."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.testing.waiting import eventually
from tests.chaos.client import Poster
from tests.chaos.project import ROUTE, Project
from tests.chaos.scene import Scene


@dataclass(frozen=True)
class Reckoning:
    """What was promised and what is there, seen from outside: rows, and what ``penstock status`` says."""

    sent: int
    acknowledged: int
    rows: Mapping[str, int]
    """Per route that makes each event a row."""
    lost: set[str]
    doubled: set[str]
    unknown: set[str]
    stale: set[str]
    """Keys whose row is not the newest that was acknowledged."""
    wrongly_failed: set[str]
    """Events in the failed store that ended nobody, or that are in it twice."""
    last_event_arrived: bool
    wrong_books: list[str]
    struck: Counter[str]
    exit_code: int
    seconds: float

    @property
    def whole(self) -> bool:
        wrong = (self.lost, self.doubled, self.unknown, self.stale, self.wrongly_failed, self.wrong_books)
        return not any(wrong) and self.last_event_arrived and self.exit_code == 0


def reckon(scene: Scene, struck: Counter[str], began: float) -> Reckoning:
    project, poster = scene.project, scene.poster
    last = eventually(lambda: _posted(project, poster), "one more event is taken")
    scene.wait_until_all_is_delivered()
    code = project.stop()
    rows, failed = project.rows(), scene.failed()
    ended = failed.keys() | scene.failed_before
    found = rows[ROUTE]
    return Reckoning(
        sent=len(poster.sent),
        acknowledged=len(poster.acknowledged),
        rows={route: counts.total() for route, counts in rows.items()},
        lost={event_id for counts in rows.values() for event_id in poster.acknowledged.keys() - counts.keys()}
        | (poster.deadly - ended),
        doubled={event_id for counts in rows.values() for event_id, count in counts.items() if count > 1}
        | (poster.maybe_deadly & found.keys()),
        unknown={event_id for counts in rows.values() for event_id in counts.keys() - poster.sent.keys()},
        stale=_stale(poster, project.newest()) if project.database is not None else set(),
        wrongly_failed={event_id for event_id, count in failed.items() if count > 1} | (ended - poster.maybe_deadly),
        last_event_arrived=all(last in counts for counts in rows.values()),
        wrong_books=_wrong_books(scene, rows),
        struck=struck,
        exit_code=code,
        seconds=time.monotonic() - began,
    )


def _stale(poster: Poster, found: Mapping[str, Sequence[int]]) -> set[str]:
    """A value without an answer may have been taken after the last that has one."""
    return {
        key
        for key, value in poster.newest.items()
        if len(found.get(key, ())) != 1 or found[key][0] not in {value, *poster.unanswered[key]}
    }


def _wrong_books(scene: Scene, rows: Mapping[str, Counter[str]]) -> list[str]:
    """What ``penstock status`` says that is not so."""
    status = json.loads(scene.project.penstock("status", "--json"))
    logged, failed = scene.logged().total(), scene.failed().total()
    wrong = []
    for route in status["routes"]:
        name = route["route"]
        true = {"in": logged, "behind": 0, "under_way": 0, "waiting": 0, "skipped": 0, "adds_up": True}
        true["failed"] = failed if name == ROUTE else 0
        true["loaded"] = rows[name].total() - scene.forgotten[name] if name in rows else logged
        wrong += [
            f"{name}: {what} is {route[what]}, should be {is_}" for what, is_ in true.items() if route[what] != is_
        ]
    return wrong


def _posted(project: Project, poster: Poster) -> str | None:
    project.wait_until_ready()
    try:
        return poster.post_one()
    except Exception:
        return None
