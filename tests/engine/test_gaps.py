"""A route whose oldest unread records are gone is refused with the truth, and the others go on."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from penstock.engine.engine import Engine
from penstock.engine.ledger import Operator, RouteState
from penstock.engine.operate.offset_control import acknowledge
from penstock.engine.pipeline import Pipeline
from penstock.engine.spark.route_source import RouteReader
from penstock.errors import RouteError
from penstock.log.format.log_files import segment_bases, segment_path
from penstock.log.read_ranges import read_options
from tests.engine.projects import append, commit, pipeline

CONFIG = """\
name: shop
log: {segment_bytes: 4KB}
engine: {restart_backoff: 10ms}
sources:
  web: {type: file, path: ./web.ndjson}
routes:
  a: {from: web, to: {type: "null", %s}}
  b: {from: web, to: {type: "null"}}
"""
RECORDS = 40


def gapped(folder: Path, options: str = "mode: stream") -> Pipeline:
    """Route ``a`` has read two records; then the oldest segments are removed. Route ``b`` is past it."""
    found = pipeline(folder, CONFIG % options)
    append(found, "web", [b'{"n": %d, "pad": "%s"}' % (n, b"x" * 500) for n in range(RECORDS)])
    for route, end in (("a", 2), ("b", 30)):
        found.ledger.open_route(route, {0: 0})
        commit(found, route, 0, end)
    for base in segment_bases(found.log.partition_dir(0))[:4]:
        segment_path(found.log.partition_dir(0), base).unlink()
    return found


@pytest.mark.parametrize("options", ["mode: stream", "mode: batch"])
def test_a_run_refuses_the_route_and_carries_the_others(tmp_path: Path, options: str) -> None:
    found = gapped(tmp_path, options)
    oldest = segment_bases(found.log.partition_dir(0))[0]
    assert not Engine(found, once=True).run(Event())
    activity = found.ledger.activity("a")
    assert activity is not None
    assert activity.state is RouteState.CRASHED
    assert activity.message.startswith(f"PEN-RTE-005: route 'a' has not read offsets 2..{oldest - 1} of partition 0")
    assert found.ledger.offsets("a")[0].committed == 2
    assert found.ledger.offsets("b")[0].committed == RECORDS
    acknowledge(found, "a", 2, oldest - 1, None, Operator("me", "gone"))
    assert Engine(found, once=True).run(Event())
    totals = found.ledger.totals("a")
    assert (totals.loaded, totals.adds_up) == (2 + RECORDS - oldest, True)


def test_a_batch_that_begins_in_what_was_removed_meanwhile_is_not_begun_behind_it(tmp_path: Path) -> None:
    found = gapped(tmp_path)
    oldest = segment_bases(found.log.partition_dir(0))[0]
    path = {"path": str(found.layout.log), "sources": "web"}
    reader = RouteReader(read_options({**path, "startingOffsets": '{"0": 2}'}), found.plan("a"))
    with pytest.raises(RouteError, match=f"has not read offsets 2..{oldest - 1}"):
        reader.partitions({"0": 0}, {"0": RECORDS})
    # Asked for again although the ledger has it: that may be gone.
    reader = RouteReader(read_options({**path, "startingOffsets": f'{{"0": {oldest}}}'}), found.plan("a"))
    assert reader.partitions({"0": 0}, {"0": RECORDS})
