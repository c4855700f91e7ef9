"""The attackers, in a process of their own: ``python -m tests.abuse.attacks NAME PORT SECONDS``.

Each goes on for so many seconds, over loopback, with a bounded number of connections. Prints one line when it has begun
and one at the end: how often each status came back.
"""

from __future__ import annotations

import gzip
import json
import random
import resource
import socket
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Lock, Thread

import pyarrow as pa

CLIENT_SECRET = "public"
SERVER_SECRET = "private"
AT_ONCE = 8
"""So many send at a time where sending is the point."""

Statuses = Counter[str]
Attack = Callable[[int, float], Statuses]

_HEAD = "POST {path} HTTP/1.1\r\nHost: x\r\n"


def _connect(port: int, address: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(address, 0))


def _hold(count: int, sent: bytes, drip: bytes = b"", every: float = 1.0) -> Attack:
    """Connections that send something and stay; some go on by a few bytes from time to time."""

    def attack(port: int, until: float) -> Statuses:
        kept: list[socket.socket] = []
        ended: Statuses = Counter()
        while time.monotonic() < until:
            while len(kept) < count and time.monotonic() < until:
                with suppress(OSError):
                    connection = _connect(port)
                    connection.sendall(sent)
                    connection.setblocking(False)
                    kept.append(connection)
            time.sleep(min(every, max(0.0, until - time.monotonic())))
            for connection in list(kept):
                try:
                    if drip:
                        connection.send(drip)
                    answer = connection.recv(4000)
                    ended[_status(answer)] += 1
                except BlockingIOError:
                    continue
                except OSError:
                    ended["ended"] += 1
                kept.remove(connection)
                connection.close()
        for connection in kept:
            connection.close()
        return ended + Counter({"held": len(kept)})

    return attack


def _send(*requests: bytes, at_once: int = AT_ONCE, apart: bool = False) -> Attack:
    """The same requests again and again; ``apart``: each sender from an address of its own."""

    def attack(port: int, until: float) -> Statuses:
        seen: Statuses = Counter()
        lock = Lock()

        def sender(number: int) -> None:
            turn = number
            address = f"127.0.1.{number + 1}" if apart else "127.0.0.1"
            while time.monotonic() < until:
                turn += 1
                status = _asked(port, requests[turn % len(requests)], address=address)
                with lock:
                    seen[status] += 1

        threads = [Thread(target=sender, args=(number,), daemon=True) for number in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return seen

    return attack


def _stream(head: bytes, piece: bytes) -> Attack:
    """Bodies that never end, as fast as they are taken."""

    def attack(port: int, until: float) -> Statuses:
        seen: Statuses = Counter()
        lock = Lock()

        def sender() -> None:
            while time.monotonic() < until:
                status = "until the end"
                try:
                    with _connect(port) as connection:
                        connection.settimeout(1)
                        connection.sendall(head)
                        while time.monotonic() < until:
                            with suppress(TimeoutError):
                                connection.send(piece)
                except OSError as error:
                    status = type(error).__name__
                with lock:
                    seen[status] += 1

        threads = [Thread(target=sender, daemon=True) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return seen

    return attack


def _fuzz(port: int, until: float) -> Statuses:
    """Requests with a few bytes changed at random, and noise."""
    chance = random.Random(14)
    models = [
        _post("/api/v1/event", b'{"template":{"a":{"b":[1,2.5e3,"\\u00e9"]}},"events":[{"a":{}},{"x":null}]}'),
        _post("/api/v1/events/bulk", b'{"n":1}\n[2]\nnonsense\n{"n":3}', "Content-Type: text/plain\r\n"),
        _post("/v1/batch", b'{"writeKey":"public","batch":[{"type":"track","context":{"a":1}}],"context":{"b":{}}}'),
        _post("/api/v1/event", gzip.compress(b'[{"a":1},{"b":[[]]}]'), "Content-Encoding: gzip\r\n"),
        _FORM,
        _post("/api/v1/bundles", b'[{"source":"hub1","kind":"a","version":"0.7","data":{"items":[2.5,"\\u00e9"]}}]'),
        f"GET /api/v1/p.gif?token=public&data={b64encode(b'{}').decode()}&a.b=c HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
    ]
    seen: Statuses = Counter()
    while time.monotonic() < until:
        request = bytearray(chance.choice(models))
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(request))
            match chance.randrange(3):
                case 0:
                    request[at] = chance.randrange(256)
                case 1:
                    del request[at : at + chance.randint(1, 8)]
                case _:
                    request[at:at] = chance.randbytes(chance.randint(1, 8))
        seen[_asked(port, bytes(request), patience=0.1)] += 1
    return seen


def _asked(port: int, request: bytes, patience: float = 60.0, address: str = "127.0.0.1") -> str:
    try:
        with _connect(port, address) as connection:
            connection.sendall(request)
            connection.settimeout(patience)
            return _status(connection.recv(4000))
    except OSError as error:
        return type(error).__name__


def _status(answer: bytes) -> str:
    return answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else "ended"


def _post(path: str, body: bytes, lines: str = "") -> bytes:
    secret = SERVER_SECRET if path == _BUNDLES else CLIENT_SECRET
    head = _HEAD.format(path=path) + f"X-Auth-Token: {secret}\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _keyless(body: bytes) -> bytes:
    """Without a token: its body may have one."""
    packed = gzip.compress(body)
    head = _HEAD.format(path=_BATCH) + f"Content-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
    return head.encode() + packed


def _gzip(path: str, body: bytes) -> bytes:
    return _post(path, gzip.compress(body), "Content-Encoding: gzip\r\n")


def _zstd(path: str, body: bytes) -> bytes:
    return _post(path, pa.compress(body, codec="zstd", asbytes=True), "Content-Encoding: zstd\r\n")


def _array(one: bytes, count: int) -> bytes:
    return b"[" + b",".join([one] * count) + b"]"


def _bundle(data: bytes) -> bytes:
    return b'{"source":"hub1","kind":"clusters","version":"0.7","data":%b}' % data


def _envelope(template: bytes, one: bytes, count: int) -> bytes:
    return b'{"template":' + template + b',"events":' + _array(one, count) + b"}"


_JS, _BULK, _BATCH, _BUNDLES = "/api/v1/event", "/api/v1/events/bulk", "/v1/batch", "/api/v1/bundles"
_FORM = _post(
    _BULK,
    b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n{"n":1}\n\r\n--b--\r\n',
    "Content-Type: multipart/form-data; boundary=b\r\n",
)
_REPEATED = b'{"a":{' + b",".join([b'"k":1'] * 8000) + b"}}"
_DEEP = b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"
_DENSE = b'{"eventn_ctx":{"event_id":null,"a":[' + b",".join([b"1"] * 20_000) + b"]}}"
_KEYLESS = (b"{" + b'"",' * 21_845, b'{"a":[' + b'"writeKey":"",' * 4600, b"{" + b'"":1,' * 13_000)
_PATHS = "&".join(f"{'k' + str(n)}.{'a.' * 60}b=x" for n in range(300))


def attacks() -> dict[str, Callable[[], Attack]]:
    """All of them by name. Bodies are made when one is asked for: some are large."""
    half = _HEAD.format(path=_JS).encode() + b"X-Auth-Tok"
    announced = _HEAD.format(path=_BATCH).encode() + b"Content-Length: 10000000\r\n\r\n{"
    known = _HEAD.format(path=_JS).encode() + b"X-Auth-Token: public\r\nContent-Length: 10000000\r\n\r\n["
    chunked = _HEAD.format(path=_JS).encode() + b"X-Auth-Token: public\r\nTransfer-Encoding: chunked\r\n\r\n"
    held = known + b" " * 9_900_000
    lines = "".join(f"X-{number}: {'y' * 900}\r\n" for number in range(95))
    return {
        "silent": lambda: _hold(3000, b""),
        "half-open": lambda: _hold(3000, half),
        "slow headers": lambda: _hold(1000, half, drip=b"e"),
        "idle, announced": lambda: _hold(1000, announced),
        "idle, with a token": lambda: _hold(1000, known),
        "slow bodies": lambda: _hold(500, chunked, drip=b"1\r\n \r\n", every=0.2),
        "tiny chunks": lambda: _stream(chunked, b"2\r\n  \r\n" * 2000),
        "held bodies": lambda: _hold(20, held),
        "header floods": lambda: _send(
            (_HEAD.format(path=_JS) + lines + "\r\n").encode(), (_HEAD.format(path=_JS) + lines * 3).encode()
        ),
        "half-open heads": lambda: _hold(1000, (_HEAD.format(path=_JS) + lines).encode()),
        "packed bombs": lambda: _send(_gzip(_JS, b" " * 50_000_000), _zstd(_BULK, b"\n" * 50_000_000)),
        "packed bodies": lambda: _send(_gzip(_JS, _array(b'{"a":"' + b"x" * 90 + b'"}', 98_000))),
        "forty packed bodies": lambda: _send(_gzip(_JS, _array(b'{"a":"' + b"x" * 90 + b'"}', 98_000)), at_once=40),
        "template bombs": lambda: _send(_gzip(_JS, _envelope(_REPEATED, b'{"a":{}}', 100_000))),
        "repeated keys": lambda: _send(_gzip(_JS, _array(_REPEATED, 200))),
        "deep json": lambda: _send(_gzip(_JS, _array(_DEEP, 5000)), _gzip(_JS, b"[" * 9_000_000)),
        "dense json": lambda: _send(_gzip(_JS, _array(_DENSE, 90)), _gzip(_JS, _array(_DENSE, 200))),
        "tiny events": lambda: _send(_gzip(_JS, _array(b"{}", 100_000)), _gzip(_JS, _array(b"{}", 20_000))),
        "bad lines": lambda: _send(_gzip(_BULK, b"x\n" * 100_000), _gzip(_BULK, b"x\n" * 4_000_000)),
        "forms": lambda: _send(
            _gzip_form(b"--b\r\n\r\n\r\n" * 1_000_000), _gzip_form(b"--b\r\nA: " + b"x" * 9_000_000), _FORM
        ),
        "pixels": lambda: _send(f"GET /api/v1/p.gif?token=public&{_PATHS} HTTP/1.1\r\nHost: x\r\n\r\n".encode()),
        "keys that are not there": lambda: _send(*map(_keyless, _KEYLESS), apart=True),
        "the same beside a good key": lambda: _send(
            *map(_keyless, _KEYLESS), _keyless(b'{"writeKey":"public","batch":[]}'), apart=True
        ),
        "bundles": lambda: _send(
            _gzip(_BUNDLES, _bundle(b"[" * 4_000_000 + b"]" * 4_000_000)),
            _gzip(_BUNDLES, _bundle(b"[" * 900_000 + b"]" * 900_000)),
            _gzip(_BUNDLES, _bundle(_array(b'"' + b"x" * 90 + b'"', 100_000))),
            _gzip(_BUNDLES, _array(_bundle(b"1"), 100_000)),
        ),
        "bundles that are none": lambda: _send(
            _gzip(_BUNDLES, _array(b"{}", 100_000)), _gzip(_BUNDLES, _array(b'{"source":"%b"}' % (b"x" * 80), 100_000))
        ),
        "fuzz": lambda: _fuzz,
    }


def _gzip_form(body: bytes) -> bytes:
    lines = "Content-Encoding: gzip\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    return _post(_BULK, gzip.compress(body), lines)


def _main(name: str, port: str, seconds: str) -> Iterator[str]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    attack = attacks()[name]()
    yield "begun"
    yield json.dumps(attack(int(port), time.monotonic() + float(seconds)))


if __name__ == "__main__":
    for line in _main(*sys.argv[1:]):
        print(line, flush=True)
