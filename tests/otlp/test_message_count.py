"""Messages are counted as a reader of messages would build them, whatever the bytes are."""

from __future__ import annotations

import random

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.otlp.json_requests import DEEPEST, Signal
from penstock.otlp.message_count import count_messages
from penstock.otlp.request_bytes import REQUESTS
from penstock.otlp.wire import BROKEN
from tests.otlp.messages import requests
from tests.otlp.test_span_scan import delimited

MOST = 10_000_000


def messages_in(message: Message) -> int:
    """Those below it, by the reader."""
    found = 0
    for field, value in message.ListFields():
        if field.message_type is not None:
            inner = list(value) if field.is_repeated else [value]
            found += sum(1 + messages_in(each) for each in inner)
    return found


@given(requests())
def test_every_message_is_counted_once(request_: ExportTraceServiceRequest) -> None:
    body = request_.SerializeToString()
    count = count_messages(Signal.TRACES, body, MOST)
    assert count == messages_in(request_)
    assert len(body) >= 2 * count
    if count:
        assert count_messages(Signal.TRACES, body, count - 1) == count
        assert count_messages(Signal.TRACES, body, 0) == 1


def every_field(message: Descriptor, above: frozenset[str]) -> tuple[bytes, int]:
    """A message with all its fields that hold messages, down to where a type would be in itself; and their number."""
    parts, found = [], 0
    for field in message.fields:
        kind = field.message_type
        if kind is not None and kind.full_name not in above:
            content, inner = every_field(kind, above | {kind.full_name})
            parts.append(delimited(field.number, content))
            found += 1 + inner
    return b"".join(parts), found


@pytest.mark.parametrize(("signal", "least"), [(Signal.TRACES, 20), (Signal.LOGS, 15), (Signal.METRICS, 50)])
def test_the_messages_of_every_signal_are_known(signal: Signal, least: int) -> None:
    body, expected = every_field(REQUESTS[signal].DESCRIPTOR, frozenset())
    REQUESTS[signal].FromString(body)
    assert count_messages(signal, body, MOST) == expected > least


@settings(max_examples=300)
@given(requests(), st.randoms(use_true_random=False))
def test_what_is_broken_to_the_counter_is_broken_to_a_reader(
    request_: ExportTraceServiceRequest, chance: random.Random
) -> None:
    body = bytearray(request_.SerializeToString())
    for _ in range(chance.randint(1, 3)):
        if body and chance.random() < 0.5:
            body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        else:
            del body[chance.randrange(len(body) + 1) :]
    count = count_messages(Signal.TRACES, bytes(body), MOST)
    try:
        read = ExportTraceServiceRequest.FromString(bytes(body))
    except DecodeError:
        return
    # A message that is there in several pieces is one to the reader.
    assert count >= messages_in(read)


def nested(levels: int) -> bytes:
    """A request with messages in each other, so many levels of them below it."""
    body = b""
    for level in range(levels - 4, 0, -1):
        body = delimited(5 if level % 2 else 1, body)
    return delimited(1, delimited(1, delimited(1, delimited(2, body))))


@pytest.mark.parametrize("levels", [DEEPEST - 1, DEEPEST, DEEPEST + 1, DEEPEST + 50])
def test_nesting_ends_where_a_reader_ends(levels: int) -> None:
    body = nested(levels)
    try:
        expected = messages_in(ExportTraceServiceRequest.FromString(body))
    except DecodeError:
        expected = BROKEN
    assert count_messages(Signal.TRACES, body, MOST) == expected
    assert expected == (levels if levels <= DEEPEST else BROKEN)


@pytest.mark.parametrize("body", [b"\x0a", b"\x0a\x05\x12", b"\x00", b"\xff" * 11, b"\x0c", b"\x0b" * 5000])
def test_what_is_no_message_is_broken(body: bytes) -> None:
    assert count_messages(Signal.TRACES, body, MOST) == BROKEN


def test_nothing_behind_the_last_message_that_is_allowed_is_looked_at() -> None:
    assert count_messages(Signal.TRACES, b"\x0a\x00" * 11 + b"\xff", 10) == 11
