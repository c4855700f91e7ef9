"""Requests that take longer than a batch waits for: how many there may be, who counts them, and who waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from threading import Event

import pytest

from penstock.destinations.contract import HeldLock, TableBook
from penstock.destinations.dataset.config import DatasetConfig
from penstock.destinations.dataset.destination import DatasetDestination
from penstock.engine.ledger import Totals
from penstock.errors import TransientError
from penstock.testing.destination import Staging, batch, events
from penstock.testing.waiting import eventually
from tests.destinations.dataset.export_route import ExportRoute
from tests.simulators.dataset import TAKE, TOKEN, DatasetServer, Reply, dataset_server


@pytest.fixture
def server() -> Iterator[DatasetServer]:
    with dataset_server() as running:
        yield running


def test_requests_that_were_let_go_count_among_those_that_may_be_in_flight(
    server: DatasetServer, tmp_path: Path
) -> None:
    route = ExportRoute(tmp_path, server, patience="100ms", max_parallel_outgoing=4)
    server.decide = lambda session, number: Reply(delay=1.5) if number == 0 else TAKE
    route.deliver([f"s{number}" for number in range(12)])
    for _ in range(3):
        route.retry()
        route.opened.ledger.wake("export", [each.group for each in route.opened.ledger.postponed("export")])
    route.settle()
    assert server.most_in_flight <= 4
    assert len(server.events) == 12
    route.check_order()


def test_a_stop_waits_for_requests_in_flight_and_nothing_is_sent_twice(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, patience="100ms", timeout="3s")
    server.decide = lambda session, number: Reply(delay=1.0)
    route.deliver(["a"])
    assert not server.accepted
    assert route.destination.is_busy
    route.destination.finish(30)
    assert not route.destination.is_busy
    assert len(server.accepted) == 1
    route.restart()
    route.settle()
    assert route.totals == Totals(items=1, loaded=1)
    assert len(server.requests) == 1


def test_a_stop_does_not_wait_for_longer_than_it_may(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, patience="100ms")
    server.decide = lambda session, number: Reply(delay=5.0)
    route.deliver(["a"])
    route.destination.finish(0.1)
    assert not server.accepted


def test_what_late_answers_charge_is_counted(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, patience="100ms", max_size=1_100)
    server.decide = lambda session, number: Reply(delay=0.5) if number == 0 else TAKE
    route.deliver(["a"] * 9, text="x" * 100)
    route.settle()
    charged = {"requests": len(server.accepted), "bytes_charged": sum(each.bytes for each in server.accepted)}
    assert route.opened.ledger.tally_of("export", "") == charged


def test_trimmed_events_are_counted_once_also_if_they_wait(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, max_size=2_000)
    server.decide = lambda session, number: Reply(503, b"{}") if number < 2 else TAKE
    route.deliver(["a", "a", "b"], message="x" * 5_000)
    route.settle()
    assert route.opened.ledger.tally_of("export", "")["trimmed"] == 3


def test_the_lease_is_kept_while_a_batch_is_sent_though_a_late_request_ends(
    server: DatasetServer, tmp_path: Path
) -> None:
    route = ExportRoute(tmp_path, server, patience="100ms", max_size=1_100)
    locks, held = route.opened.ledger.names.locks.select(), list[bool]()
    server.decide = lambda session, number: Reply(delay=0.6)
    route.deliver(["slow"])

    def look(session: str, number: int) -> Reply:
        held.append(bool(route.opened.ledger.rows(locks)))
        return Reply(delay=0.05)

    server.decide = look
    route.deliver(["b"] * 60, text="x" * 100)
    late = next(place for place, each in enumerate(server.accepted) if each.info["s"] == "slow")
    assert 0 < late < len(server.accepted) - 1, "it has ended in the middle of the batch"
    assert len(held) > 10
    assert all(held)
    route.settle()
    eventually(lambda: not route.opened.ledger.rows(locks), "the lease is given back")


class LosesItsLease(TableBook):
    """Another engine has it once ``is_lost`` is set."""

    def __init__(self) -> None:
        self.is_lost = Event()

    def lock(self, name: str, lease: float | None = None) -> AbstractContextManager[HeldLock]:
        lost = self.is_lost

        class Lease(HeldLock):
            def check(self) -> None:
                if lost.is_set():
                    raise TransientError("PEN-LGR-009", "the lock went to another engine.", "Stop one of them.")

        return nullcontext(Lease())


@pytest.mark.parametrize("patience", ["100ms", "60s"])
def test_who_has_lost_the_lease_ends_what_is_in_flight_and_sends_nothing_more(
    patience: str, server: DatasetServer, tmp_path: Path
) -> None:
    options = {"url": server.url, "token": TOKEN, "patience": patience, "max_size": 1_100, "timeout": "60s"}
    destination, book = DatasetDestination(DatasetConfig.model_validate(options)), LosesItsLease()
    parts = Staging(destination, tmp_path).stage(events(*({"n": number, "text": "x" * 500} for number in range(9))))
    ended: list[int] = []

    def decide(session: str, number: int) -> Reply:
        book.is_lost.set()
        ended.append(number)
        return Reply(delay=60)

    server.decide = decide
    with suppress(TransientError):
        destination.write(batch(0), parts, book)
    eventually(lambda: server.in_flight == 0, "nothing is in flight")
    assert (ended, server.accepted) == ([0], [])
    with pytest.raises(TransientError):
        destination.write(batch(1), parts, book)
