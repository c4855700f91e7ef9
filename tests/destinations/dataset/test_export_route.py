"""Events from the log to a simulated API that fails in every way: what waits, what comes again, and in which order."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engine.delivery.failing_report import FailingReport
from penstock.engine.ledger import Totals
from penstock.sources.http.readiness import Readiness
from penstock.testing.crash import crash_at
from penstock.testing.waiting import eventually
from tests.destinations.dataset.export_route import ExportRoute
from tests.simulators.dataset import TAKE, Accepted, DatasetServer, Reply, dataset_server

SMALL = {"max_size": 1_100}
"""Requests of two or three events."""
BUSY = Reply(503, b"{}")


@pytest.fixture
def server() -> Iterator[DatasetServer]:
    with dataset_server() as running:
        yield running


def sizes(accepted: list[Accepted]) -> list[int]:
    return [each.bytes for each in accepted]


def test_events_go_out_in_order_by_session(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server)
    route.deliver(["a", "b", "a", "c", "b", "a"])
    route.deliver(["a"])
    assert route.arrived == {"a": [0, 2, 5, 6], "b": [1, 4], "c": [3]}
    assert route.totals == Totals(items=7, loaded=7)
    assert len(server.by_session()) == 3


def test_large_groups_are_cut_into_requests_under_the_limit(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, **SMALL)
    route.deliver(["a", "b"] * 30, text="x" * 100)
    route.check_order()
    assert (len(route.arrived["a"]), len(route.arrived["b"])) == (30, 30)
    assert len(server.accepted) > 10
    assert max(sizes(server.accepted)) <= 1_100
    assert min(sizes(server.accepted[:10])) > 600


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "none"},
        {"compression": "gzip", "compression_level": 0},
        {"compression": "gzip", "compression_level": 3},
        {"compression": "zstd"},
        {"compression": "zstd", "compression_level": 19},
    ],
)
def test_requests_are_packed_as_asked(options: dict[str, object], server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, **options)
    route.deliver(["a"] * 5, text="ä" * 1_000)
    assert route.arrived == {"a": list(range(5))}
    route.check_order()


def test_events_have_no_id_if_so_asked_and_the_host_that_is_configured(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, id_attribute=None, server_host="edge-7")
    route.deliver(["a"])
    assert [event["attrs"] for event in server.events] == [{"n": 0}]
    assert server.accepted[0].info == {"serverHost": "edge-7", "s": "a"}


def test_a_failing_session_waits_and_the_others_do_not(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server)
    failing = {"a"}
    route.deliver(["a", "b"])
    (bad,) = {each.session for each in server.accepted if each.info["s"] == "a"}
    server.decide = lambda session, number: BUSY if failing and session == bad else TAKE
    route.deliver(["a", "b", "a", "b"])
    route.deliver(["a", "b"])
    assert route.totals == Totals(items=8, loaded=5, waiting=3)
    assert route.arrived == {"a": [0], "b": [1, 3, 5, 7]}
    tries = [status for session, _, status in server.requests if session == bad]
    assert tries == [200, 503], "new events of a session that waits do not ask again"
    failing.clear()
    route.settle()
    assert route.arrived["a"] == [0, 2, 4, 6]
    assert route.totals == Totals(items=8, loaded=8)
    assert len([each for each in server.accepted if each.session == bad]) == 2, "what waited is sent together"
    route.check_order()


@pytest.mark.parametrize("status", [401, 403, 429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(status: int, server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server)
    server.decide = lambda session, number: TAKE if number else Reply(status)
    route.deliver(["a"])
    assert route.totals.waiting == 1
    route.settle()
    assert route.arrived == {"a": [0]}


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'"ok"', b"{"])
def test_an_answer_that_is_no_json_object_is_none(body: bytes, server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server)
    server.decide = lambda session, number: TAKE if number else Reply(200, body)
    route.deliver(["a"])
    assert route.totals.waiting == 1
    route.settle()


@pytest.mark.parametrize("status", [400, 404, 405, 422])
def test_a_request_that_is_refused_fails_with_the_answer_and_others_go_on(
    status: int, server: DatasetServer, tmp_path: Path
) -> None:
    route = ExportRoute(tmp_path, server, **SMALL)
    server.decide = lambda session, number: Reply(status, b"no good") if number == 1 else TAKE
    route.deliver(["a"] * 9, text="x" * 100)
    assert route.totals.waiting == 0
    assert 0 < route.totals.failed < 9
    assert route.totals.loaded == 9 - route.totals.failed
    (entry, *_) = route.opened.failed_store.read("export", route.opened.ledger.failed_extent("export"))
    assert (entry.code, entry.error) == ("refused", f"it answers {status}: no good")


def test_a_request_that_is_too_large_for_the_server_is_halved(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server)
    server.most_bytes = 900
    route.deliver(["a"] * 16, text="x" * 100)
    assert route.arrived == {"a": list(range(16))}
    route.deliver(["a", "a"], text="x" * 900)
    assert (route.totals.loaded, route.totals.failed) == (16, 2)
    route.check_order()


def test_a_server_that_asks_for_a_pause_gets_it(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server)
    asked = Reply(429, b"{}", (("Retry-After", "1"),))
    server.decide = lambda session, number: TAKE if number else asked
    route.deliver(["a"])
    route.settle()
    first, second = (at for _, at, _ in server.requests)
    assert second - first >= 1.0


def test_an_answer_that_is_lost_brings_the_events_again_under_the_same_ids(
    server: DatasetServer, tmp_path: Path
) -> None:
    route = ExportRoute(tmp_path, server)
    server.decide = lambda session, number: TAKE if number else Reply(lose=True)
    route.deliver(["a", "a"])
    route.settle()
    first, second = server.accepted
    assert [event["attrs"]["penstock.id"].rpartition("-")[2] for event in first.events] == ["0", "1"]
    assert first.events == second.events


def test_no_two_events_have_the_same_id_also_of_other_pipelines_and_after_an_older_copy_was_put_back(
    server: DatasetServer, tmp_path: Path
) -> None:
    def ids(folder: str, events: int) -> list[str]:
        (tmp_path / folder).mkdir(exist_ok=True)
        route, before = ExportRoute(tmp_path / folder, server), len(server.events)
        route.deliver(["a"] * events)
        return [event["attrs"]["penstock.id"] for event in server.events[before:]]

    (tmp_path / "first").mkdir()
    ExportRoute(tmp_path / "first", server).append(["a", "a"])
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    first, copy, other = ids("first", 1), ids("copy", 1), ids("other", 3)
    assert first[:2] == copy[:2]
    assert len({*first, *copy, *other}) == 2 + 1 + 1 + 3


def test_a_connection_that_is_reset_is_tried_again(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server)
    server.decide = lambda session, number: TAKE if number else Reply(reset=True)
    route.deliver(["a"])
    route.settle()
    assert route.arrived == {"a": [0]}


def test_a_request_that_takes_long_holds_up_nobody_and_is_not_sent_twice(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, patience="200ms")
    route.deliver(["a", "b"])
    slow = server.accepted[[each.info["s"] for each in server.accepted].index("a")].session
    server.decide = lambda session, number: Reply(delay=1.5) if (session, number) == (slow, 1) else TAKE
    route.deliver(["a", "b"])
    assert route.totals == Totals(items=4, loaded=3, waiting=1)
    route.deliver(["a", "b"])
    assert route.arrived == {"a": [0], "b": [1, 3, 5]}
    route.settle()
    assert route.arrived["a"] == [0, 2, 4]
    route.check_order()


def test_what_fails_for_too_long_is_dead_if_so_asked_and_the_rest_goes_on(
    server: DatasetServer, tmp_path: Path
) -> None:
    retry = {"initial": "20ms", "max": "50ms", "for": "200ms"}
    route = ExportRoute(tmp_path, server, retry=retry, on_error="dead_letter", max_size=1_100)
    bad = True
    server.decide = lambda session, number: Reply(500, b"broken") if bad else TAKE
    route.deliver(["a"] * 9, text="x" * 100)
    assert route.totals.waiting == 9
    route.retry_until(lambda: route.totals.failed > 0, "the first request is given up")
    bad = False
    route.settle()
    assert route.totals.loaded + route.totals.failed == 9
    assert route.arrived["a"] == list(range(route.totals.failed, 9))


@pytest.mark.parametrize("nth", [1, 2, 4])
def test_after_a_crash_only_what_was_not_noted_is_sent_again(nth: int, server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, **SMALL)
    route.append(["a"] * 30, text="x" * 100)
    with crash_at(f"destination.writing@{nth}"):
        route.deliver()
    assert len(server.accepted) == nth
    before = len(server.accepted)
    route.restart()
    route.deliver()
    again = {event["attrs"]["n"] for each in server.accepted[before:] for event in each.events}
    seen = [event["attrs"]["n"] for each in server.accepted[:before] for event in each.events]
    last = {event["attrs"]["n"] for event in server.accepted[before - 1].events}
    assert again & set(seen) == last, "only the request whose acceptance was not noted comes again"
    assert route.totals == Totals(items=30, loaded=30)
    assert sorted(again | set(seen)) == list(range(30))


def test_sessions_that_fail_are_named_until_they_succeed_themselves(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, reject_when_failing={"age": "0s", "retry_after": "7s"})
    route.deliver(["a", "b"])
    bad = {each.session for each in server.accepted}
    server.decide = lambda session, number: BUSY if session in bad else TAKE
    route.deliver(["a", "b"])
    report = FailingReport(tmp_path / "run", route.opened.plan("export"), route.opened.ledger, route.opened.log)
    readiness = Readiness()
    readiness.run_dir = tmp_path / "run"

    def refuses() -> bool:
        report.update(route.destination)
        readiness.check_targets("web")
        return readiness.refusal is not None

    assert refuses()
    assert readiness.refusal is not None
    assert (readiness.refusal.count, readiness.refusal.retry_after) == (2, 7.0)
    assert readiness.problem == "route export could not deliver for 0 s"
    assert {key.reason for key in readiness.refusal.keys} == {"it answers 503: {}"}
    bad.pop()
    route.retry_until(lambda: len(route.destination.failing()) == 1, "one has succeeded")
    assert refuses(), "the success of one session does not end the error of another"
    bad.clear()
    route.settle()
    assert not refuses()
    assert readiness.problem is None


def test_after_a_crash_before_the_commit_nothing_is_sent_again(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server)
    route.append(["a", "b", "a"])
    with crash_at("destination.committed"):
        route.deliver()
    route.restart()
    route.deliver()
    assert route.arrived == {"a": [0, 2], "b": [1]}
    assert route.totals == Totals(items=3, loaded=3)
    assert route.opened.ledger.rows(route.opened.ledger.names.progress.select()) == []


def test_refused_events_are_counted_once_also_after_a_crash(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, **SMALL)
    server.decide = lambda session, number: Reply(400, b"no") if number == 0 else TAKE
    route.append(["a"] * 9, text="x" * 100)
    with crash_at("destination.committed"):
        route.deliver()
    route.restart()
    route.deliver()
    assert route.totals.failed > 0
    assert route.totals.loaded + route.totals.failed == 9
    assert len(route.arrived["a"]) == route.totals.loaded


def test_refused_events_are_counted_once_also_after_a_crash_in_the_middle(
    server: DatasetServer, tmp_path: Path
) -> None:
    route = ExportRoute(tmp_path, server, **SMALL)
    server.decide = lambda session, number: TAKE if number == 2 else Reply(400, f"no {number}".encode())
    route.append(["a"] * 30, text="x" * 100)
    with crash_at("destination.writing@4"):
        route.deliver()
    route.restart()
    route.deliver()
    entries = route.opened.failed_store.read("export", route.opened.ledger.failed_extent("export"))
    failed = [json.loads(entry.record.data)["n"] for entry in entries]
    assert sorted([*failed, *route.arrived["a"]]) == list(range(30))
    assert route.totals == Totals(items=30, loaded=len(route.arrived["a"]), failed=len(failed))


def test_a_restart_keeps_its_sessions(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server)
    route.deliver(["a"])
    route.restart()
    route.deliver(["a"])
    assert len({each.session for each in server.accepted}) == 1


def test_two_routes_have_sessions_of_their_own(server: DatasetServer, tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        ExportRoute(tmp_path / name, server).deliver(["a"])
    assert len({each.session for each in server.accepted}) == 2


def test_a_hot_key_is_spread_over_sessions_if_so_asked(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, max_sessions_per_key=3)
    route.deliver(["a"] * 9)
    assert sorted(len(each.events) for each in server.accepted) == [3, 3, 3]
    assert sorted(route.arrived["a"]) == list(range(9))


def test_what_is_no_event_fails_and_a_huge_one_is_trimmed(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, max_size=2_000)
    route.deliver(["a"], message="\n" * 5_000, other="y")
    (event,) = server.events
    assert server.accepted[0].bytes <= 2_000
    assert event["attrs"]["penstock.trimmed"] == {"message": 10_002}
    assert event["attrs"]["other"] == "y"
    route.deliver(["b"], **{f"name{number:0100d}": 1 for number in range(40)})
    assert route.totals.failed == 1


def test_many_sessions_with_every_fault_arrive_completely_and_in_order(server: DatasetServer, tmp_path: Path) -> None:
    route = ExportRoute(tmp_path, server, max_size=4_000, patience="300ms", timeout="2s")

    def decide(session: str, number: int) -> Reply:
        kind = zlib.crc32(f"{session[-32:]}{number}".encode()) % 23
        return {1: BUSY, 2: Reply(lose=True), 3: Reply(reset=True), 4: Reply(delay=0.5)}.get(kind, TAKE)

    server.decide = decide
    sessions = [f"s{number % 40}" for number in range(2_000)]
    for start in range(0, 2_000, 500):
        if start == 500:
            server.set_away(0)
        if start == 1_500:
            server.set_away()
        route.deliver(sessions[start : start + 500])
        route.retry()
    route.settle()
    route.check_order()
    assert {name: sorted(set(numbers)) for name, numbers in route.arrived.items()} == {
        name: [number for number in range(2_000) if sessions[number] == name] for name in set(sessions)
    }
    seen: dict[int, str] = {}
    for event in server.events:
        assert seen.setdefault(event["attrs"]["n"], json.dumps(event)) == json.dumps(event)
    extra = len(server.events) - 2_000
    assert extra == 0 or server.lost
    eventually(lambda: route.totals == Totals(items=2_000, loaded=2_000), "all is counted")
