"""Connections that cost a place and bring nothing: they must not cost anybody else an answer."""

from __future__ import annotations

import json
import resource
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from threading import Event, Thread

import pyarrow as pa
import pytest

from penstock.testing.source import numbers
from penstock.testing.waiting import HANG, eventually
from tests.sources.http.server import CLIENT, Running, collector

JS, BATCH = "/api/v1/event", "/v1/batch"
HEAD = b"POST /api/v1/event HTTP/1.1\r\nHost: x\r\nX-Auth-Token: public\r\n"


@contextmanager
def connections(web: Running, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """So many connections that have sent this and then nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 500:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 500), hard))
    with ExitStack() as kept:
        opened = []
        for _ in range(count):
            opened.append(kept.enter_context(socket.create_connection(("127.0.0.1", web.port), timeout=HANG)))
            opened[-1].sendall(sent)
        yield opened


def answered(connection: socket.socket) -> bytes:
    connection.settimeout(20)
    return connection.recv(4000)


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def seconds_for_one(web: Running, number: int) -> float:
    """On a connection of its own, as a new client comes."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", web.port), timeout=HANG) as connection:
        body = json.dumps({"n": number}).encode()
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        assert answered(connection).startswith(b"HTTP/1.1 200")
    return time.monotonic() - began


@pytest.mark.parametrize("head", [b"", b"X-Auth-Token: public\r\n"], ids=["no token", "a public token"])
def test_idle_connections_with_a_large_announced_body_cost_nobody_else_an_answer(tmp_path: Path, head: bytes) -> None:
    announced = b"POST /v1/batch HTTP/1.1\r\nHost: x\r\n" + head + b"Content-Length: 10000000\r\n\r\n{"
    with collector(tmp_path) as web, connections(web, 231, announced):
        for number in range(20):
            assert web.post(JS, json.dumps({"n": number})).status_code == 200
        assert web.post(JS, json.dumps([{"n": 20, "pad": "x" * 40_000}] * 5)).status_code == 200
        eventually(lambda: web.pending_bytes() <= 231, "only what arrived being held")


def test_three_thousand_half_open_requests_delay_nobody(tmp_path: Path) -> None:
    with collector(tmp_path, workers=2) as web:
        for sent in (b"POST /api/v1/event HTTP/1.1\r\nHost: x\r\nX-Auth", b""):
            with connections(web, 3000, sent):
                taken = [seconds_for_one(web, number) for number in range(30)]
                assert median(taken) < 1.0
                assert max(taken) < 10, "one may meet a machine that is busy with something else"


def test_the_oldest_connections_without_a_token_go_and_those_with_one_stay(tmp_path: Path) -> None:
    limits = {"anonymous_per_address": 20, "header_timeout": "60s"}
    with collector(tmp_path, limits=limits) as web, ExitStack() as kept:
        known = kept.enter_context(connections(web, 30, HEAD + b'Content-Length: 7\r\n\r\n{"n":1}'))
        assert all(answered(connection).startswith(b"HTTP/1.1 200") for connection in known)
        older = kept.enter_context(connections(web, 15, b"POST /"))
        eventually(lambda: sum(map(is_open, older)) >= 15, "all of them being open")
        newer = kept.enter_context(connections(web, 20, b"POST /"))
        eventually(lambda: sum(map(is_open, older)) + sum(map(is_open, newer)) <= 20, "the budget being kept")
        assert sum(map(is_open, newer)) >= 18  # the test's own client may be among the anonymous
        assert all(map(is_open, known))


def test_a_trusted_proxy_brings_many_clients_from_one_address(tmp_path: Path) -> None:
    limits = {"anonymous_per_address": 5, "header_timeout": "60s"}
    with (
        collector(tmp_path, limits=limits, trusted_proxies=["127.0.0.1"]) as web,
        connections(web, 50, b"POST /") as opened,
    ):
        for number in range(20):  # each takes a while, and is looked at
            assert seconds_for_one(web, number) < 10
        time.sleep(0.5)
        assert all(map(is_open, opened))


def test_beyond_all_places_the_idle_make_room(tmp_path: Path) -> None:
    limits = {"connections": 10, "header_timeout": "60s"}
    with collector(tmp_path, limits=limits) as web, ExitStack() as kept:
        opened = []
        for number in range(40):
            connection = kept.enter_context(socket.create_connection(("127.0.0.1", web.port), timeout=HANG))
            connection.sendall(HEAD + b'Content-Length: 8\r\n\r\n{"n":%2d}' % number)
            assert answered(connection).startswith(b"HTTP/1.1 200")
            opened.append(connection)
        eventually(lambda: sum(map(is_open, opened)) <= 10, "idle ones being closed")
        assert seconds_for_one(web, 2) < 10


def test_a_body_that_went_silent_makes_room_for_others(tmp_path: Path) -> None:
    with collector(tmp_path, limits={"pending_bytes": 200_000, "body_timeout": "60s"}) as web:
        part = HEAD + b"Content-Length: 150000\r\n\r\n" + b" " * 140_000
        with connections(web, 1, part) as (silent,):
            eventually(lambda: web.pending_bytes() == 140_000, "the part that came being held")
            time.sleep(0.3)
            large = json.dumps([{"n": 1, "pad": "x" * 40_000}] * 3)
            assert web.post(JS, large).status_code == 200
            assert answered(silent).startswith(b"HTTP/1.1 503")
            eventually(lambda: web.pending_bytes() == 0, "both being let go")
        assert numbers(web.records()) == [1, 1, 1]


def test_bodies_of_unknown_senders_make_room_for_the_known_although_they_are_not_silent(tmp_path: Path) -> None:
    start = b"POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n{" + b" " * 40_000
    body = json.dumps({"n": 1, "pad": "x" * 30_000})
    with (
        collector(tmp_path, limits={"pending_bytes": 200_000, "body_timeout": "60s"}) as web,
        connections(web, 20, start) as strangers,
        drip(strangers),
    ):
        eventually(lambda: web.pending_bytes() > 100_000, "the room being full of them")
        answers = [web.post(JS, body).status_code for _ in range(10)]
        assert answers == [200] * 10
    assert numbers(web.records()) == [1] * 10


@contextmanager
def drip(opened: Sequence[socket.socket]) -> Iterator[None]:
    """Send a blank on each of these again and again, so that none is silent."""
    done = Event()

    def send() -> None:
        while not done.wait(0.05):
            for connection in opened:
                with suppress(OSError):
                    connection.sendall(b" ")

    sender = Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        done.set()
        sender.join()


def test_a_key_in_the_body_is_checked_before_the_rest_is_read(tmp_path: Path) -> None:
    with collector(tmp_path) as web:
        start = b"POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n"
        with connections(web, 1, start + b'{"writeKey":"wrong","batch":[' + b" " * 70_000) as (waiting,):
            answer = answered(waiting)
            assert answer.startswith(b"HTTP/1.1 401")
            assert b"unknown token" in answer
        with connections(web, 1, start + b'{"batch":[' + b" " * 70_000) as (waiting,):
            answer = answered(waiting)
            assert answer.startswith(b"HTTP/1.1 401")
            assert b"first in the body" in answer
        eventually(lambda: web.pending_bytes() == 0, "nothing being held")


@pytest.mark.parametrize("encoding", [None, "gzip", "zstd"])
@pytest.mark.parametrize("size", [1, 150_000])
def test_a_key_in_the_body_opens_packed_and_plain_bodies(tmp_path: Path, encoding: str | None, size: int) -> None:
    events = [{"n": number, "pad": str(number) * 100} for number in range(max(1, size // 150))]
    body = json.dumps({"writeKey": "public", "batch": events}).encode()
    packed = pa.compress(body, codec=encoding, asbytes=True) if encoding else body
    headers = {"Content-Encoding": encoding} if encoding else {}
    with collector(tmp_path) as web:
        answer = web.post(BATCH, packed, headers)
        assert (answer.status_code, answer.json()["accepted"]) == (200, len(events))
        assert web.post(BATCH, json.dumps({"writeKey": "public", "batch": [], "writeKey2": 1}), {}).status_code == 200
        twice = b'{"writeKey":"public","batch":[{"n":1}],"writeKey":"wrong"}'
        assert web.post(BATCH, twice, {}).status_code == 401
        assert web.post(BATCH, b'{"batch":[{"writeKey":"public"}]}', {}).status_code == 401
        assert web.post(BATCH, b'{"batch":[]}', CLIENT).status_code == 200
