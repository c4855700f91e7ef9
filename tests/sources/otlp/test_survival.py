"""Killed workers, a stop in the middle: every success is in the log."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.log.local_log import LocalLog
from penstock.record import Record
from penstock.testing.source import log_records
from penstock.testing.waiting import HANG, eventually
from tests.sources.otlp.receiver import PROTOBUF, TOKENS, Running, receiver
from tests.sources.otlp.requests import SPAN, traces
from tests.sources.otlp.test_grpc import METHOD
from tests.support import plain_http


def children(pid: int) -> list[int]:
    """The worker processes of a source."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in found if b"otlp.receiver_worker" in Path(f"/proc/{child}/cmdline").read_bytes()]


def body_of(number: int) -> bytes:
    return traces((number.to_bytes(16, "big"), SPAN)).SerializeToString()


def numbers(found: list[Record]) -> list[int]:
    """The trace ids of every record, as they were numbered."""
    requests = [ExportTraceServiceRequest.FromString(record.data or b"") for record in found]
    return [int.from_bytes(request.resource_spans[0].scope_spans[0].spans[0].trace_id) for request in requests]


class _Sender(threading.Thread):
    """Sends numbers one after the other, each on a connection of its own so that all workers get some."""

    def __init__(self, source: Running, over_grpc: bool) -> None:
        super().__init__(daemon=True)
        self.taken: list[int] = []
        self._source = source
        self._over_grpc = over_grpc
        self._ending = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._ending.is_set():
            number += 1
            if self._send(body_of(number)):
                self.taken.append(number)

    def stop(self) -> None:
        self._ending.set()
        self.join(HANG)
        assert not self.is_alive()

    def _send(self, body: bytes) -> bool:
        try:
            if not self._over_grpc:
                answer = plain_http.post(f"{self._source.url}/v1/traces", content=body, headers=PROTOBUF, timeout=5)
                return answer.status_code == 200
            options = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(f"127.0.0.1:{self._source.grpc_port}", options) as channel:
                channel.unary_unary(METHOD)(body, timeout=5)
                return True
        except (httpx.TransportError, grpc.RpcError):
            return False


@pytest.mark.parametrize("over_grpc", [False, True])
def test_a_killed_worker_comes_back_with_its_partition_and_no_success_is_lost(tmp_path: Path, over_grpc: bool) -> None:
    with receiver(tmp_path, grpc=True, workers=2) as source:
        eventually(lambda: len(LocalLog(tmp_path / "log").partitions()) == 2, "two partitions")
        sender = _Sender(source, over_grpc)
        sender.start()
        for _ in range(3):
            eventually(lambda: len(children(source.pid)) == 2, "two workers")
            enough = len(sender.taken) + 30
            eventually(lambda: len(sender.taken) > enough, "30 more requests")  # noqa: B023
            os.kill(children(source.pid)[0], signal.SIGKILL)
        eventually(lambda: len(children(source.pid)) == 2, "two workers")
        sender.stop()
        found = numbers(source.records())
        assert set(sender.taken) <= set(found)
        assert set(LocalLog(tmp_path / "log").partitions()) == {0, 1}


@pytest.mark.parametrize("point", ["log.append.before_fsync", "log.append.after_fsync"])
def test_a_worker_killed_while_it_commits_loses_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv("PENSTOCK_FAULTS", f"{point}@5=kill")
    with receiver(tmp_path) as source:
        deadline = time.monotonic() + HANG
        for number in range(1, 13):
            while True:
                assert time.monotonic() < deadline
                try:
                    answer = plain_http.post(f"{source.url}/v1/traces", content=body_of(number), headers=PROTOBUF)
                except httpx.TransportError:
                    continue
                if answer.status_code == 200:
                    break
        assert set(numbers(source.records())) == set(range(1, 13))


def test_a_request_under_way_is_answered_when_the_source_stops(tmp_path: Path) -> None:
    body = body_of(7)
    with (
        receiver(tmp_path, grpc=True) as source,
        socket.create_connection(("127.0.0.1", source.port), timeout=HANG) as connection,
    ):
        connection.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n4\r\n" + body[:4] + b"\r\n"
        )
        eventually(lambda: source.counted("penstock_collector_pending") == 4, "the first part")
        source.http.close()
        os.kill(source.pid, signal.SIGTERM)
        eventually(lambda: _refuses_connections(source.port), "the end of new connections")
        connection.sendall(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body) - 4, body[4:]))
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert numbers(log_records(tmp_path / "log")) == [7]


def test_secrets_are_not_on_a_command_line_or_in_a_file(tmp_path: Path) -> None:
    with receiver(tmp_path, tokens=TOKENS) as source:
        assert source.post(body_of(1), **{"X-Auth-Token": "private"}).status_code == 200
        for pid in (source.pid, *children(source.pid)):
            for name in ("cmdline", "environ"):
                assert b"private" not in Path(f"/proc/{pid}/{name}").read_bytes()
        stored = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        assert not any(b"private" in content for content in stored)


def _refuses_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False
