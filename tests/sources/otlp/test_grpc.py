"""OTLP/gRPC: the same intake as over HTTP, with gRPC's own codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from penstock.record import Header
from penstock.testing.waiting import HANG, eventually
from tests.sources.http.test_tls import certificate
from tests.sources.otlp.receiver import TOKENS, Running, receiver
from tests.sources.otlp.requests import SPAN, TRACE, traces

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
GOOD = traces().SerializeToString()
BEARER = (("authorization", "Bearer private"),)
LARGEST = 200_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    limits = {"body_bytes": LARGEST, "body_timeout": "1s"}
    with receiver(tmp_path_factory.mktemp("grpc"), grpc=True, tokens=TOKENS, limits=limits) as running:
        yield running


@pytest.fixture(scope="module")
def channel(source: Running) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{source.grpc_port}") as found:
        yield found


def export(
    channel: grpc.Channel,
    body: bytes,
    metadata: tuple[tuple[str, str], ...] = BEARER,
    compression: grpc.Compression = grpc.Compression.NoCompression,
) -> bytes:
    call = channel.unary_unary(METHOD)
    answer: bytes = call(body, metadata=metadata, compression=compression, timeout=HANG)
    return answer


def refusal(error: grpc.RpcError) -> Status:
    """What the trailers say of a refusal; an empty status if gRPC itself refused."""
    found = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    return Status.FromString(found)


@pytest.mark.parametrize("size", [0, 30_000, 150_000])
@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_call_is_stored_as_it_is(
    source: Running, channel: grpc.Channel, size: int, compression: grpc.Compression
) -> None:
    before = len(source.records())
    body = traces(pad=size).SerializeToString()
    assert export(channel, body, compression=compression) == b""
    (record,) = source.records()[before:]
    assert (record.data, record.namespace) == (body, "traces")
    expected = {Header.CONTENT_TYPE: "application/x-protobuf", Header.ENDPOINT: "grpc", Header.TOKEN: "apps"}
    assert record.headers == expected


def test_an_empty_call_is_a_success(channel: grpc.Channel) -> None:
    assert export(channel, b"") == b""


def test_spans_with_wrong_ids_are_a_partial_success(source: Running, channel: grpc.Channel) -> None:
    before = len(source.records())
    body = traces((TRACE, SPAN), (b"", SPAN)).SerializeToString()
    assert ExportTraceServiceResponse.FromString(export(channel, body)).partial_success.rejected_spans == 1
    assert [record.data for record in source.records()[before:]] == [body]


@pytest.mark.parametrize(
    ("body", "compression", "code"),
    [
        (GOOD[:-3], grpc.Compression.NoCompression, grpc.StatusCode.INVALID_ARGUMENT),
        (b"\xff" * 20, grpc.Compression.NoCompression, grpc.StatusCode.INVALID_ARGUMENT),
        (b"\x1f\x8b", grpc.Compression.NoCompression, grpc.StatusCode.INVALID_ARGUMENT),
        (b"\xff" * 20, grpc.Compression.Gzip, grpc.StatusCode.INVALID_ARGUMENT),
        (bytes(LARGEST + 1), grpc.Compression.NoCompression, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (bytes(50_000_000), grpc.Compression.Gzip, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
def test_what_cannot_be_taken_is_not_to_be_sent_again(
    source: Running, channel: grpc.Channel, body: bytes, compression: grpc.Compression, code: grpc.StatusCode
) -> None:
    before = len(source.records())
    with pytest.raises(grpc.RpcError) as caught:
        export(channel, body, compression=compression)
    assert caught.value.code() is code
    assert not refusal(caught.value).details
    assert len(source.records()) == before
    assert export(channel, GOOD) == b""


@pytest.mark.parametrize("metadata", [(), (("authorization", "Bearer nobody"),), (("x-auth-token", ""),)])
def test_without_a_good_token_it_is_unauthenticated(
    channel: grpc.Channel, metadata: tuple[tuple[str, str], ...]
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        export(channel, GOOD, metadata)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "token" in caught.value.details()


def test_a_bad_token_is_told_before_the_message_is_read(channel: grpc.Channel) -> None:
    ending = Event()

    def never() -> Iterator[bytes]:
        ending.wait(HANG)
        yield b""

    with pytest.raises(grpc.RpcError) as caught:
        channel.stream_unary(METHOD)(never(), timeout=HANG)
    ending.set()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_message_that_does_not_come_is_not_waited_for(channel: grpc.Channel) -> None:
    ending = Event()

    def late() -> Iterator[bytes]:
        ending.wait(HANG)
        yield GOOD

    with pytest.raises(grpc.RpcError) as caught:
        channel.stream_unary(METHOD)(late(), metadata=BEARER, timeout=HANG)
    ending.set()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_another_service_is_unimplemented(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/opentelemetry.proto.collector.profiles.v1.ProfilesService/Export")(b"", timeout=HANG)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_full_disk_is_for_the_client_to_try_again(tmp_path: Path) -> None:
    with (
        receiver(tmp_path, grpc=True, limits={"disk_reserve": "1000000TB"}) as source,
        grpc.insecure_channel(f"127.0.0.1:{source.grpc_port}") as channel,
    ):

        def refused() -> grpc.RpcError | None:
            try:
                export(channel, GOOD, ())
            except grpc.RpcError as error:
                return error
            return None

        error = eventually(refused, "the reserve being seen")
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        (detail,) = refusal(error).details
        retry = RetryInfo()
        assert detail.Unpack(retry)
        assert retry.retry_delay.seconds >= 1


def test_calls_are_taken_over_tls(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    with receiver(tmp_path, grpc=True, tls=tls) as source:
        trusted = grpc.ssl_channel_credentials(Path(tls["cert"]).read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{source.grpc_port}", trusted) as channel:
            assert export(channel, GOOD, ()) == b""
        assert source.post(GOOD).status_code == 200
        assert [record.headers[Header.ENDPOINT] for record in source.records()] == ["grpc", "http"]
