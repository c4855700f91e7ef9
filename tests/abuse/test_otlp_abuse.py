"""Requests that are small and stand for much: what an OTLP source's worker may need for them, and what it answers."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from penstock.testing.waiting import HANG, eventually
from tests.abuse.run import RSS_LIMIT_MIB, forget_peak, peak_mib
from tests.sources.otlp.receiver import JSON, PROTOBUF, Running, receiver
from tests.sources.otlp.requests import traces
from tests.sources.otlp.test_grpc import METHOD
from tests.sources.otlp.test_survival import children

LARGEST = 9_999_000
GOOD = traces().SerializeToString()


def delimited(fields: list[int], content: bytes) -> bytes:
    """A content in messages in each other, of which these are the fields, from the outside in."""
    for field in reversed(fields):
        size, encoded = len(content), bytearray()
        while size > 127:
            encoded.append(size & 127 | 128)
            size >>= 7
        content = bytes([field << 3 | 2, *encoded, size]) + content
    return content


def empty(*fields: int, size: int = LARGEST) -> Callable[[], bytes]:
    """Messages of two bytes in the last of these fields."""
    return lambda: delimited(list(fields[:-1]), bytes([fields[-1] << 3 | 2, 0]) * (size // 2))


def listed(before: bytes, each: bytes, behind: bytes, count: int) -> Callable[[], bytes]:
    return lambda: before + b",".join([each] * count) + behind


IN_SPANS = b'{"resourceSpans":[{"scopeSpans":[{"spans":['
ABUSES: dict[str, tuple[str, dict[str, str], Callable[[], bytes], int]] = {
    "empty spans": ("traces", PROTOBUF, empty(1, 2, 2), 413),
    "empty resources": ("traces", PROTOBUF, empty(1), 413),
    "empty events": ("traces", PROTOBUF, empty(1, 2, 2, 11), 413),
    "empty attributes": ("traces", PROTOBUF, empty(1, 1, 1), 413),
    "as many spans as are taken": ("traces", PROTOBUF, empty(1, 2, 2, size=1_999_900), 200),
    "empty spans, and then no message": ("traces", PROTOBUF, lambda: empty(1, 2, 2)() + b"\xff", 413),
    "no message, and then empty resources": ("traces", PROTOBUF, lambda: b"\x0c" + empty(1)(), 400),
    "empty log records": ("logs", PROTOBUF, empty(1, 2, 2), 413),
    "empty metrics": ("metrics", PROTOBUF, empty(1, 2, 2), 413),
    "empty histograms": ("metrics", PROTOBUF, empty(1, 2, 2, 10, 1), 413),
    "buckets of one byte": ("metrics", PROTOBUF, lambda: delimited([1, 2, 2, 10, 1, 8, 2], b"\x01" * LARGEST), 200),
    "unknown fields": ("traces", PROTOBUF, lambda: b"\x78\x01" * (LARGEST // 2), 200),
    "values in values": ("traces", PROTOBUF, lambda: _nested_values(LARGEST), 400),
    "empty spans as JSON": ("traces", JSON, listed(IN_SPANS, b"{}", b"]}]}]}", 3_300_000), 413),
    "half as many": ("traces", JSON, listed(IN_SPANS, b"{}", b"]}]}]}", 990_000), 200),
    "deep JSON": ("logs", JSON, lambda: b"[" * LARGEST, 413),
    "deep values as JSON": ("traces", JSON, lambda: _nested_json(90_000), 400),
    "JSON in unknown keys": ("traces", JSON, listed(b'{"x":[', b'{"":1}', b"]}", 660_000), 200),
}


def _nested_values(size: int) -> bytes:
    """A resource of attributes that are lists of lists, deeper than protobuf reads."""
    deep = delimited([1, 2, *[5, 1] * 60], b"")
    return delimited([1, 1], deep * (size // len(deep)))


def _nested_json(levels: int) -> bytes:
    value = b'{"arrayValue":{"values":[' * levels + b"]}}" * levels
    return b'{"resourceSpans":[{"resource":{"attributes":[{"key":"k","value":%b}]}}]}' % value


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with receiver(tmp_path_factory.mktemp("abused"), grpc=True) as running:
        yield running


@pytest.fixture(autouse=True)
def within_its_memory(source: Running) -> Iterator[None]:
    (worker,) = children(source.pid)
    forget_peak(worker)
    yield
    assert source.post(GOOD).status_code == 200
    assert children(source.pid) == [worker]
    peak = peak_mib(worker)
    print(f"{peak:.0f} MiB")
    assert peak < RSS_LIMIT_MIB


@pytest.mark.timeout(120)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("name", ABUSES)
def test_a_request_is_answered_within_the_memory_of_a_worker(source: Running, name: str, packed: bool) -> None:
    signal, headers, make, status = ABUSES[name]
    body = make()
    if packed:
        answer = source.post(gzip.compress(body, 1), headers, signal, **{"Content-Encoding": "gzip"})
    else:
        answer = source.post(body, headers, signal)
    assert answer.status_code == status, answer.text


@pytest.mark.timeout(120)
@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_the_same_holds_over_grpc(source: Running, compression: grpc.Compression) -> None:
    with (
        grpc.insecure_channel(f"127.0.0.1:{source.grpc_port}") as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_unary(METHOD)(empty(1, 2, 2)(), compression=compression, timeout=HANG)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "limits.body_messages" in caught.value.details()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("signal", ["traces", "logs", "metrics"])
def test_a_packed_bomb_is_not_unpacked_to_its_end(source: Running, signal: str) -> None:
    packed = gzip.compress(b"\x0a\x00" * 100_000_000, 1)
    assert source.post(packed, signal=signal, **{"Content-Encoding": "gzip"}).status_code == 413


def test_nothing_of_it_stays_charged(source: Running) -> None:
    assert source.post(empty(1)()).status_code == 413
    eventually(lambda: source.counted("penstock_collector_pending") == 0, "the room of all requests being free")


def test_nothing_that_was_refused_is_stored(tmp_path: Path) -> None:
    with receiver(tmp_path, limits={"body_messages": 4}) as source:
        assert source.post(empty(1, 2, 2, size=20)()).status_code == 413
        assert source.records() == []
        assert source.post(empty(1, 2, 2, size=4)()).status_code == 200
        assert len(source.records()) == 1
