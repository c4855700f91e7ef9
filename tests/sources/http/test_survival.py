"""Overload, a full disk, killed workers, a stop in the middle: every 200 is in the log, and the collector goes on."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from penstock.log.local_log import LocalLog
from penstock.sources.http.metrics import Tally
from penstock.sources.http.readiness import FAILURE_MEMORY_SECONDS
from penstock.testing.source import log_records, numbers
from penstock.testing.waiting import HANG, eventually
from tests.sources.http.server import CLIENT, Running, collector
from tests.support import plain_http
from tests.support.small_disk import fill, small_disk

JS = "/api/v1/event"
HEAD = b"POST /api/v1/event HTTP/1.1\r\nHost: x\r\nX-Auth-Token: public\r\n"


def children(pid: int) -> list[int]:
    """The worker processes of a collector."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in found if b"sources.http.worker" in Path(f"/proc/{child}/cmdline").read_bytes()]


@contextmanager
def dripping(connection: socket.socket) -> Iterator[None]:
    """The body goes on, slowly."""
    ending = threading.Event()

    def drip() -> None:
        while not ending.wait(0.02):
            connection.sendall(b"1\r\n \r\n")

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    yield
    ending.set()
    thread.join(10)


def refuses_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False


def test_too_much_at_once_is_sent_away_and_later_taken(tmp_path: Path) -> None:
    with collector(tmp_path, limits={"pending_bytes": 1000}) as web:
        body = b'{"n":1,"pad":"' + b"x" * 800 + b'"}'
        with socket.create_connection(("127.0.0.1", web.port), timeout=HANG) as slow:
            slow.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n258\r\n" + b" " * 600 + b"\r\n")
            with dripping(slow):  # one that has gone silent would make room
                eventually(lambda: web.pending_bytes() >= 600, "the slow body being held")
                for content in (body, iter([body])):
                    answer = web.http.post(web.url + JS, content=content, headers=CLIENT)
                    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
                    assert int(answer.headers["retry-after"]) >= 1
        eventually(lambda: web.pending_bytes() == 0, "the slow body being let go")
        assert web.post(JS, body).status_code == 200
        assert numbers(web.records()) == [1]


def test_a_full_disk_is_said_and_outlived(tmp_path: Path) -> None:
    with collector(tmp_path) as web:
        assert web.post(JS, b'{"n":1}').status_code == 200
        (worker,) = children(web.pid)
        size = max(path.stat().st_size for path in (tmp_path / "log").rglob("*.seg"))
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (size + 16, resource.RLIM_INFINITY))
        answer = web.post(JS, b'[{"n":2},{"n":3}]')
        assert (answer.status_code, answer.json()["code"]) == (503, "log_full")
        assert "retry-after" in answer.headers
        assert web.http.get(f"{web.url}/readyz").status_code == 503
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert web.post(JS, b'{"n":4}').status_code == 200
        assert web.http.get(f"{web.url}/readyz").status_code == 200
        assert numbers(web.records()) == [1, 4]
        assert children(web.pid) == [worker]


def test_the_last_room_on_the_disk_is_left_to_those_who_deliver(tmp_path: Path) -> None:
    with collector(tmp_path, limits={"disk_reserve": "1000000TB"}) as web:
        answer = eventually(lambda: _refused(web), "the reserve being seen")
        ready = web.http.get(f"{web.url}/readyz")
        assert (ready.status_code, ready.json()["code"]) == (503, "not_ready")
        assert "disk is full" in ready.text
        assert (answer.status_code, answer.json()["code"]) == (503, "log_full")
        assert "retry-after" in answer.headers


@pytest.mark.parametrize("reserve", ["4MiB", "0"])
def test_a_collector_is_not_ready_while_its_disk_is_full_and_ready_when_there_is_room(
    tmp_path: Path, reserve: str
) -> None:
    with (
        small_disk(tmp_path, 8) as disk,
        collector(disk, '{"segment_bytes": "1MiB"}', limits={"disk_reserve": reserve}) as web,
    ):
        assert web.post(JS, b'{"n":1}').status_code == 200
        ballast = fill(disk)
        answer = eventually(lambda: _refused(web), "the full disk being seen")
        assert (answer.status_code, answer.json()["code"]) == (503, "log_full")
        until = time.monotonic() + 2 * FAILURE_MEMORY_SECONDS
        while time.monotonic() < until:  # nobody posts any more
            assert web.http.get(f"{web.url}/readyz").status_code == 503
            time.sleep(0.1)
        ballast.unlink()
        eventually(lambda: web.http.get(f"{web.url}/readyz").status_code == 200, "readiness")
        assert web.post(JS, b'{"n":2}').status_code == 200


def test_metrics_that_cannot_be_saved_are_told_once_and_once_when_they_are_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved, path = True, tmp_path / "later" / "0.json"
    for attempt in range(20):
        if attempt == 10:
            path.parent.mkdir()
        saved = Tally().try_save(path, failing=not saved)
    first, second = caplog.messages
    assert first.startswith("the metrics cannot be saved: ")
    assert second == "the metrics are saved again"


def _refused(web: Running) -> httpx.Response | None:
    answer = web.post(JS, b'{"n":1}')
    return None if answer.status_code == 200 else answer


def test_a_killed_worker_comes_back_with_its_partition_and_no_200_is_lost(tmp_path: Path) -> None:
    with collector(tmp_path, workers=2) as web:
        eventually(lambda: len(LocalLog(tmp_path / "log").partitions()) == 2, "two partitions")
        sent = _Sender(web)
        sent.start()
        for _ in range(3):
            eventually(lambda: len(children(web.pid)) == 2, "two workers")
            enough = len(sent.taken) + 50
            eventually(lambda: len(sent.taken) > enough, "50 more events")  # noqa: B023
            os.kill(children(web.pid)[0], signal.SIGKILL)
        eventually(lambda: len(children(web.pid)) == 2, "two workers")
        sent.stop()
        found = numbers(web.records())
        assert set(sent.taken) <= set(found)
        assert len(found) == len(set(found))
        assert set(found) <= sent.tried
        assert set(LocalLog(tmp_path / "log").partitions()) == {0, 1}
        eventually(lambda: _is_ready(web), "readiness")


def _is_ready(web: Running) -> bool:
    """A connection that a worker had not taken when it was killed is reset."""
    try:
        return web.http.get(f"{web.url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


class _Sender(threading.Thread):
    """Posts numbers one after the other, each on a connection of its own so that all workers get some."""

    def __init__(self, web: Running) -> None:
        super().__init__(daemon=True)
        self.tried: set[int] = set()
        self.taken: list[int] = []
        self._url = web.url + JS
        self._ending = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._ending.is_set():
            number += 1
            self.tried.add(number)
            try:
                answer = plain_http.post(self._url, content=b'{"n":%d}' % number, headers=CLIENT, timeout=5)
            except httpx.TransportError:
                continue
            if answer.status_code == 200:
                self.taken.append(number)

    def stop(self) -> None:
        self._ending.set()
        self.join(10)
        assert not self.is_alive()


def test_a_request_under_way_is_answered_when_the_collector_stops(tmp_path: Path) -> None:
    with collector(tmp_path) as web, socket.create_connection(("127.0.0.1", web.port), timeout=HANG) as connection:
        connection.sendall(HEAD + b'Transfer-Encoding: chunked\r\n\r\n4\r\n{"n"\r\n')
        eventually(lambda: web.pending_bytes() == 4, "the first half")
        web.http.close()
        os.kill(web.pid, signal.SIGTERM)
        eventually(lambda: refuses_connections(web.port), "the end of new connections")
        connection.sendall(b"3\r\n:7}\r\n0\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert numbers(log_records(tmp_path / "log")) == [7]


@pytest.mark.parametrize("stopped", [False, True])
def test_workers_end_when_their_parent_is_killed(tmp_path: Path, stopped: bool) -> None:
    with collector(tmp_path, workers=2) as web:
        eventually(lambda: len(children(web.pid)) == 2, "two workers")
        workers = children(web.pid)
        if stopped:
            os.kill(workers[0], signal.SIGSTOP)
        os.kill(web.pid, signal.SIGKILL)
        eventually(lambda: not any(_is_alive(pid) for pid in workers), "the end of the workers")


def _is_alive(pid: int) -> bool:
    try:
        return "(python" in Path(f"/proc/{pid}/stat").read_text() and " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_secrets_are_not_on_a_command_line_or_in_a_file(tmp_path: Path) -> None:
    with collector(tmp_path) as web:
        for pid in (web.pid, *children(web.pid)):
            for name in ("cmdline", "environ"):
                assert b"private" not in Path(f"/proc/{pid}/{name}").read_bytes()
        stored = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        assert not any(b"private" in content for content in stored)


@pytest.mark.parametrize("point", ["log.append.before_fsync", "log.append.after_fsync"])
def test_a_worker_killed_while_it_commits_loses_no_200(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv("PENSTOCK_FAULTS", f"{point}@5=kill")
    with collector(tmp_path) as web:
        taken = []
        deadline = time.monotonic() + HANG
        for number in range(12):
            while True:
                assert time.monotonic() < deadline
                try:
                    answer = plain_http.post(web.url + JS, content=json.dumps({"n": number}), headers=CLIENT)
                except httpx.TransportError:
                    continue
                if answer.status_code == 200:
                    taken.append(number)
                    break
        found = numbers(web.records())
        assert taken == list(range(12))
        assert set(found) == set(taken)


def test_connections_that_the_system_deals_out_unevenly_do_not_wait(tmp_path: Path) -> None:
    with (
        collector(tmp_path, workers=3, limits={"connections": 9, "header_timeout": "60s"}) as web,
        ExitStack() as kept,
    ):
        eventually(lambda: len(LocalLog(tmp_path / "log").partitions()) == 3, "three partitions")
        web.http.close()
        # As many as one worker takes: however they fall, nobody may have to wait for another to hang up.
        for number in range(9):
            connection = kept.enter_context(socket.create_connection(("127.0.0.1", web.port), timeout=HANG))
            connection.sendall(HEAD + b'Content-Length: 8\r\n\r\n{"n":%2d}' % number)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_a_connection_too_many_waits_until_an_idle_one_is_closed(tmp_path: Path) -> None:
    with collector(tmp_path, limits={"connections": 2, "header_timeout": "1s"}) as web, ExitStack() as kept:
        web.http.close()
        for number in range(5):
            connection = kept.enter_context(socket.create_connection(("127.0.0.1", web.port), timeout=HANG))
            connection.sendall(HEAD + b'Content-Length: 7\r\n\r\n{"n":%d}' % number)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        assert numbers(web.records()) == [0, 1, 2, 3, 4]


def test_a_low_limit_on_open_files_is_raised_for_the_connections(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # This process has files of its own open, of other tests too.
    low = len(os.listdir("/proc/self/fd")) + 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    try:
        with collector(tmp_path, limits={"connections": low + 500}) as web:
            (worker,) = children(web.pid)
            assert resource.prlimit(worker, resource.RLIMIT_NOFILE)[0] >= low + 500
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
