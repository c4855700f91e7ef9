"""From where on the log is kept for what waits, if records of one group come over several partitions."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event

from penstock.destinations.file.destination import FileDestination
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.ledger import Totals
from penstock.engine.pipeline import Pipeline
from penstock.engine.stateful import shard_home
from penstock.engine.stateful.state_recovery import give_up_state
from penstock.log.read_ranges import Stretch
from tests.engine.projects import append_all, pipeline
from tests.engine.stateful.in_process import Store, run_tasks

CONFIG = """\
name: shop
sources: {web: {type: file, path: ./web.ndjson}, app: {type: file, path: ./app.ndjson}}
routes:
  out:
    from: [web, app]
    steps: [{gather: {key: k, until: done, at_most: 10s}}]
    to: {type: file, path: ./out}
"""


def event(number: int, key: str, done: bool = False) -> bytes:
    return json.dumps({"n": number, "k": key, "done": done}).encode()


def deliver(opened: Pipeline, store: Store) -> None:
    """All that the route has not read, in one batch."""
    plan = opened.plan("out")
    positions = opened.ledger.offsets("out")
    ends = {p: opened.log.bounds(p).end for p in positions}
    stretches = [Stretch(p, at.committed, ends[p]) for p, at in positions.items() if at.committed < ends[p]]
    destination = FileDestination(plan.destination_config)  # type: ignore[arg-type]
    delivery = Delivery(plan, destination, opened.log, opened.ledger, opened.failed_store, Event())
    delivery.deliver(run_tasks(plan, opened.log, store, stretches))


def test_a_group_that_another_partition_closed_does_not_wait_again_when_the_state_is_lost(tmp_path: Path) -> None:
    shard_home._memories.clear()
    opened = pipeline(tmp_path, CONFIG)
    app = append_all(opened, "app", [event(0, "before", done=True)])
    web = append_all(opened, "web", [event(1, "open"), event(2, "order")])
    append_all(opened, "app", [event(3, "order", done=True)])
    opened.ledger.open_route("out", {web: 0, app: 0})
    deliver(opened, Store())
    assert opened.ledger.totals("out") == Totals(items=4, loaded=3, waiting=1)
    # Of the other partition what came after the oldest record that waits; nothing waits there.
    assert opened.ledger.held("out") == {web: 0, app: 1}
    assert opened.floors() == {web: 0, app: 1}

    shard_home._memories.clear()
    give_up_state(opened.ledger, opened.log, opened.plan("out"))
    store = Store()
    deliver(opened, store)
    assert opened.ledger.totals("out") == Totals(items=7, loaded=5, skipped=1, waiting=1)
    append_all(opened, "app", [event(4, "open", done=True)])
    deliver(opened, store)
    assert opened.ledger.totals("out") == Totals(items=8, loaded=7, skipped=1)
    assert opened.ledger.held("out") == {}
    opened.ledger.close()
