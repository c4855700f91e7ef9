"""A route to the simulator over log and ledger, as the engine delivers it, but for Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from penstock.destinations.dataset.destination import DatasetDestination
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.item_staging import stage_items
from penstock.engine.delivery.task import run_task
from penstock.engine.delivery.task_report import add_up
from penstock.engine.ledger import Totals
from penstock.engine.retry_lane.postponed_retrier import PostponedRetrier
from penstock.log.read_ranges import Stretch
from penstock.record import Record, entries
from penstock.testing.waiting import eventually
from tests.engine.projects import pipeline
from tests.simulators.dataset import TOKEN, DatasetServer

CONFIG = """\
name: shop
sources: {web: {type: file, path: ./web.ndjson}}
routes: {export: {from: web, to: TO}}
"""
QUICK = {"initial": "20ms", "max": "50ms"}
"""Retries for tests that do not look at pauses."""


class ExportRoute:
    def __init__(self, folder: Path, server: DatasetServer, **options: Any) -> None:
        to = {"type": "dataset", "url": server.url, "token": TOKEN, "group_by": ["s"], "retry": QUICK, **options}
        self.opened = pipeline(folder, CONFIG.replace("TO", json.dumps(to)))
        self.server = server
        self.read = 0
        self._sent = 0
        self.restart()

    def restart(self) -> None:
        """As after a crash: nothing is left in memory."""
        found = self.opened.plan("export").destination()
        assert isinstance(found, DatasetDestination)
        self.destination = found

    def append(self, sessions: Sequence[str], **more: Any) -> None:
        """One event for each, numbered over all."""
        rows = []
        for session in sessions:
            rows.append(Record(json.dumps({"s": session, "n": self._sent, **more}).encode(), namespace="web"))
            self._sent += 1
        writer = self.opened.log.writer("web")
        writer.append(entries(rows))
        writer.close()

    def deliver(self, sessions: Sequence[str] = (), **more: Any) -> None:
        """A batch of all that is new, and of these events."""
        if sessions:
            self.append(sessions, **more)
        plan, log, ledger = self.opened.plan("export"), self.opened.log, self.opened.ledger
        ledger.open_route("export", {0: 0})
        start, end = self.read, log.bounds(0).end
        report = add_up([run_task(plan, log.read(0, start, end), Stretch(0, start, end))])
        self.delivery.deliver(report)
        self.read = end

    def retry(self) -> None:
        """Try once what is due."""
        if due := self.destination.look_after():
            self.opened.ledger.wake("export", due)
        stage = partial(stage_items, self.opened.plan("export"), self.opened.log)
        PostponedRetrier(self.delivery, stage).retry_due()

    def retry_until(self, reached: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            self.retry()
            return reached()

        eventually(look, what, seconds=60)

    def settle(self) -> None:
        self.retry_until(lambda: not self.totals.waiting, "nothing waits")

    @property
    def delivery(self) -> Delivery:
        opened = self.opened
        return Delivery(
            opened.plan("export"), self.destination, opened.log, opened.ledger, opened.failed_store, Event()
        )

    @property
    def totals(self) -> Totals:
        return self.opened.ledger.totals("export")

    @property
    def arrived(self) -> Mapping[str, list[int]]:
        """The numbers of what was accepted, by session."""
        found: dict[str, list[int]] = {}
        for each in list(self.server.accepted):
            found.setdefault(each.info["s"], []).extend(event["attrs"]["n"] for event in each.events)
        return found

    def check_order(self) -> None:
        """Nobody saw two requests of a session at a time, and what came is in order."""
        assert not self.server.overlaps
        assert not self.server.complaints
        for numbers in self.arrived.values():
            first_seen = list(dict.fromkeys(numbers))
            assert first_seen == sorted(first_seen)
