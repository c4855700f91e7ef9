"""The reckoning: every row, every version, every write and the books, once nobody reports any more."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import httpx

from penstock.testing.waiting import eventually
from tests.chaos.scene import Scene
from tests.chaos.state.fleet import Fleet
from tests.chaos.state.hub import KINDS
from tests.chaos.state.project import COLUMNS, StateProject
from tests.chaos.state.witness import Witness

SHOWN = 20


@dataclass(frozen=True)
class Reckoning:
    """What was done, and everything that is not as it should be, in the words of a person."""

    posted: int
    repeated: int
    """Requests that were sent again, because they got no answer."""
    logged: int
    writes: int
    row_changes: int
    wrong: Sequence[str]
    struck: Counter[str]
    exit_code: int
    seconds: float

    @property
    def whole(self) -> bool:
        return not self.wrong and self.exit_code == 0


def reckon(
    scene: Scene, project: StateProject, fleet: Fleet, witness: Witness, struck: Counter[str], began: float
) -> Reckoning:
    """Every hub reports once more, all of it arrives, and everything stops."""
    finish(project, fleet)
    scene.wait_until_all_is_delivered()
    code = project.stop()
    logged = _logged(scene)
    wrong = [*wrong_state(project, fleet), *witness.wrong(), *_wrong_books(project, logged)]
    return Reckoning(
        posted=fleet.posted,
        repeated=fleet.repeated,
        logged=logged.total(),
        writes=len(witness.writes()),
        row_changes=witness.row_changes(),
        wrong=wrong,
        struck=struck,
        exit_code=code,
        seconds=time.monotonic() - began,
    )


def finish(project: StateProject, fleet: Fleet) -> None:
    """Let every hub report once more, whatever it takes."""

    def is_finished() -> bool:
        project.wait_until_ready()
        try:
            fleet.finish()
        except httpx.HTTPError:
            return False
        return True

    eventually(is_finished, f"all hubs have reported (see {project.log})")


def wrong_state(project: StateProject, fleet: Fleet) -> Iterator[str]:
    """Rows and versions that are not those of the newest bundles."""
    tables, versions = project.tables(), project.versions()
    for hub in fleet.hubs:
        for kind in KINDS:
            if versions.get((hub.name, kind)) != hub.newest[kind]:
                yield f"{kind} of {hub.name}: {versions.get((hub.name, kind))} is there, not {hub.newest[kind]}"
        for table in COLUMNS:
            found, true = tables[table].pop(hub.name, {}), hub.rows[table]
            if found != true:
                odd = sorted(found.items() ^ true.items())
                yield f"{table} of {hub.name}: {len(odd)} rows differ, such as {odd[:2]}"
    yield from (f"{table} has rows of {sorted(rows)}" for table, rows in tables.items() if rows)


def _wrong_books(project: StateProject, logged: Counter[str]) -> Iterator[str]:
    (status,) = json.loads(project.penstock("status", "--json"))["routes"]
    true = {"in": logged.total(), "behind": 0, "under_way": 0, "waiting": 0, "failed": 0, "adds_up": True}
    yield from (f"{what} is {status[what]}, should be {is_}" for what, is_ in true.items() if status[what] != is_)
    (conflated,) = json.loads(project.penstock("conflate", "status", "--json"))
    if conflated["position_lag"]:
        yield f"the database says that {conflated['position_lag']} records are to come"
    for kind in KINDS:
        counts = Counter[str]()
        for each in conflated["kinds"]:
            if each["kind"] == kind:
                counts.update(each["counts"])
        if counts["received"] != logged[kind]:
            yield f"{kind}: {counts['received']} were received, should be {logged[kind]}"
        settled = counts["written"] + counts["conflated"] + counts["failed"]
        if counts["received"] != settled:
            yield f"{kind}: {counts['received']} were received and {settled} are settled: {dict(counts)}"


def _logged(scene: Scene) -> Counter[str]:
    """How many bundles of each kind the log has."""
    with scene.opened() as pipeline:
        return Counter(
            dict(headers)["kind"]
            for partition in pipeline.log.partitions()
            for batch in pipeline.log.read(partition, 0)
            for headers in batch.column("headers").to_pylist()
        )
