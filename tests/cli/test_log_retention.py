"""An hour of traffic with a route that stands still: retention holds exactly what it needs, and the disk says so."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.engine.pipeline import Pipeline
from penstock.record import Record, entries
from tests.cli.projects import Project
from tests.engine.projects import commit

SEGMENT = 16_000
LIMIT = 100_000
PROJECT = f"""\
name: shop
log: {{segment_bytes: {SEGMENT}, fsync: never, retention: {{max_age: 5m, max_bytes: {LIMIT}}}}}
sources: {{web: {{type: file, path: ./web.ndjson}}}}
routes:
  fast: {{from: web, to: {{type: "null"}}}}
  slow: {{from: web, namespace: "shop.1.*", to: {{type: "null"}}}}
  stopped: {{from: web, to: {{type: "null"}}}}
"""
NAMESPACES = 200
START = datetime(2030, 1, 1, tzinfo=UTC)
STOPS, GOES_ON, END = 10, 70, 80
"""Minutes."""


def minute(number: int) -> list[Record]:
    """What comes in during one minute: a record of each of 200 namespaces."""
    time = START + timedelta(minutes=number)
    return [Record(b'{"n": %d}' % n, f"shop.{n}", timestamp=time) for n in range(NAMESPACES)]


def deliver(pipeline: Pipeline, route: str, end: int) -> None:
    commit(pipeline, route, 0, end)
    pipeline.log.holds.set(route, {0: end})


def for_nobody(pipeline: Pipeline, floor: int) -> list[int]:
    """The offsets behind the closed segments of which nobody needs anything."""
    bases = sorted(int(path.stem) for path in (pipeline.layout.log / "0").glob("*.seg"))
    return [following for following in bases[1:] if following <= floor]


def test_a_route_that_stands_still_for_an_hour_is_held_for_and_the_disk_is_bounded(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.config.write_text(PROJECT)
    pipeline = project.open()
    sizes: list[int] = []
    stood_at = 0
    with pipeline.log.writer("web") as writer:
        for route in ("fast", "slow", "stopped"):
            pipeline.ledger.open_route(route, {writer.partition: 0})
        for number in range(END):
            now = START + timedelta(minutes=number)
            end = writer.append(entries(minute(number))).stop
            deliver(pipeline, "fast", end)
            deliver(pipeline, "slow", end)
            if not STOPS <= number < GOES_ON:
                deliver(pipeline, "stopped", end)
                stood_at = end
            pipeline.log.apply_retention(pipeline.floors(), now)

            assert pipeline.floors() == {0: stood_at}
            offsets = [o for batch in pipeline.log.read(0, stood_at) for o in batch.column("offset").to_pylist()]
            assert offsets == list(range(stood_at, end)), "what the route needs is there"
            size = pipeline.log.usage()[0].bytes
            for following in for_nobody(pipeline, stood_at):
                assert START + timedelta(minutes=(following - 1) // NAMESPACES) >= now - timedelta(minutes=5), "too old"
                assert size <= LIMIT, "too much"
            sizes.append(size)
            if number in (STOPS - 1, GOES_ON - 1, END - 1):
                shown = json.loads(project.penstock("status", "--json").out)
                assert shown["partitions"][0]["bytes"] == size
                assert {route["route"]: route["lag"] for route in shown["routes"]}["stopped"] == end - stood_at
    pipeline.ledger.close()
    before, peak, after = sizes[STOPS - 1], sizes[GOES_ON - 1], sizes[END - 1]
    hour = (GOES_ON - STOPS) * NAMESPACES
    assert peak == max(sizes) > 4 * before
    assert peak <= hour * (before / (5 * NAMESPACES)) * 2, "an hour of records, not more"
    assert after <= LIMIT
    assert "KiB" in project.penstock("status").out
