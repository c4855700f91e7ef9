"""What the engine tells sources about a destination that fails, and when it stops to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from penstock.destinations.sending.sending_options import RejectOptions
from penstock.engine.delivery.failing_report import FailingReport
from penstock.engine.ledger import Operator
from penstock.failing_targets import FailingTarget, failing_targets
from penstock.testing.waiting import eventually
from tests.destinations.dataset.export_route import ExportRoute
from tests.simulators.dataset import TAKE, DatasetServer, Reply, dataset_server

BUSY = Reply(503, b"{}")


@pytest.fixture
def server() -> Iterator[DatasetServer]:
    with dataset_server() as running:
        yield running


@contextmanager
def telling(route: ExportRoute, folder: Path) -> Iterator[None]:
    opened, ended = route.opened, Event()
    report = FailingReport(folder, opened.plan("export"), opened.ledger, opened.log, forgotten_after=0.5)
    thread = Thread(target=report.keep_telling, args=(route.destination, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def told(folder: Path) -> FailingTarget | None:
    return next(iter(failing_targets(folder)), None)


def test_sources_learn_of_it_while_a_batch_is_still_sent(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, reject_when_failing={"age": "0s"}, patience="60s", max_size=1_100)
    route.deliver(["a", "b"])
    first = server.accepted[0].session
    go_on = Event()

    def decide(session: str, number: int) -> Reply:
        return BUSY if session == first else TAKE if go_on.is_set() else Reply(delay=0.1)

    server.decide = decide
    route.deliver([server.accepted[0].info["s"]])
    slow = Thread(target=route.deliver, args=([server.accepted[1].info["s"]] * 200,), kwargs={"text": "x" * 100})
    with telling(route, tmp_path / "told"):
        slow.start()
        eventually(lambda: told(tmp_path / "told") is not None, "it is told")
        assert slow.is_alive(), "the batch is under way"
        go_on.set()
        slow.join()
    assert told(tmp_path / "told") is None


def test_what_an_operator_has_given_up_is_no_reason_to_refuse(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, reject_when_failing={"age": "0s"}, error_state_timeout="1h")
    server.decide = lambda session, number: BUSY
    route.deliver(["a", "b"])
    with telling(route, tmp_path / "told"):
        eventually(lambda: told(tmp_path / "told") is not None, "it is told")
        route.opened.ledger.acknowledge_waiting("export", 0, (0, 1), Operator("ann", "lost"))
        eventually(lambda: getattr(told(tmp_path / "told"), "count", 0) == 1, "one key fails still")
        route.opened.ledger.acknowledge_waiting("export", 0, (1, 2), Operator("ann", "lost"))
        eventually(lambda: told(tmp_path / "told") is None, "nothing fails any more")
    assert not route.destination.failing()


@pytest.mark.parametrize(
    ("limits", "refuses"),
    [
        (True, False),
        ({"age": "1h"}, False),
        ({"age": "0s"}, True),
        ({"age": "1h", "bytes": 1}, True),
        ({"bytes": 1}, True),
        ({"bytes": "1GiB"}, False),
        ({"age": "0s", "bytes": "1GiB"}, True),
        ({}, False),
    ],
)
def test_sources_refuse_by_age_or_by_bytes(limits: Any, refuses: bool, server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, reject_when_failing=limits)
    server.decide = lambda session, number: BUSY
    route.deliver(["a"])
    report = FailingReport(tmp_path, route.opened.plan("export"), route.opened.ledger, route.opened.log)
    report.update(route.destination)
    (target,) = failing_targets(tmp_path)
    assert bool(target.refuse) is refuses


def test_an_age_is_asked_for_unless_bytes_are() -> None:
    ages = [RejectOptions.model_validate(each).limits.age for each in ({}, {"bytes": 1}, {"bytes": 1, "age": "5s"})]
    assert ages == [60.0, None, 5.0]
