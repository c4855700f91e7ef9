"""Which requests can be read, and which spans in them are no spans."""

from __future__ import annotations

import sys

import pytest

from penstock.otlp.json_requests import Signal
from penstock.sources.otlp.exports import BadExport, Export, MediaType, count_wrong_ids, read_export
from penstock.sources.otlp.message_limit import TooManyMessages
from tests.sources.otlp.requests import SPAN, TRACE, traces, traces_json

MOST = 1000
"""Messages in a request."""

IDS = [
    (TRACE, SPAN, True),
    (b"", SPAN, False),
    (TRACE, b"", False),
    (TRACE[:15], SPAN, False),
    (TRACE + b"x", SPAN, False),
    (bytes(16), SPAN, False),
    (TRACE, bytes(8), False),
    (TRACE, SPAN[:7], False),
    (TRACE, SPAN + b"9", False),
    (bytes(15) + b"\x01", bytes(7) + b"\x01", True),
]


@pytest.mark.parametrize(("trace_id", "span_id", "good"), IDS)
def test_ids_that_no_span_can_have_are_counted(trace_id: bytes, span_id: bytes, good: bool) -> None:
    assert count_wrong_ids(traces((trace_id, span_id))) == (0 if good else 1)
    assert count_wrong_ids(traces((TRACE, SPAN), (trace_id, span_id), (TRACE, SPAN))) == (0 if good else 1)


def test_both_encodings_are_read_alike() -> None:
    ids = [(trace_id, span_id) for trace_id, span_id, _ in IDS]
    expected = Export(empty=False, items=len(IDS), rejected=8)
    assert read_export(Signal.TRACES, MediaType.PROTOBUF, traces(*ids).SerializeToString(), MOST) == expected
    text = traces_json(*[(trace_id.hex(), span_id.hex()) for trace_id, span_id in ids])
    assert read_export(Signal.TRACES, MediaType.JSON, text, MOST) == expected


@pytest.mark.parametrize("signal", Signal)
def test_a_request_with_nothing_in_it_is_empty(signal: Signal) -> None:
    assert read_export(signal, MediaType.PROTOBUF, b"", MOST).empty
    assert read_export(signal, MediaType.JSON, b"{}", MOST).empty


@pytest.mark.parametrize("signal", Signal)
def test_a_cut_or_flipped_request_is_read_or_refused_and_nothing_else(signal: Signal) -> None:
    whole = traces((TRACE, SPAN), (TRACE, SPAN)).SerializeToString()
    text = traces_json(("00" * 15 + "01", "00" * 7 + "01"))
    variants = [(MediaType.PROTOBUF, whole[:end]) for end in range(len(whole))]
    variants += [(MediaType.JSON, text[:end]) for end in range(len(text))]
    for media_type, body in ((MediaType.PROTOBUF, whole), (MediaType.JSON, text)):
        for bit in range(8 * len(body)):
            flipped = bytearray(body)
            flipped[bit // 8] ^= 1 << bit % 8
            variants.append((media_type, bytes(flipped)))
    refused = 0
    for media_type, body in variants:
        try:
            read_export(signal, media_type, body, MOST)
        except BadExport:
            refused += 1
    assert refused > len(variants) // 10


@pytest.mark.parametrize("media_type", MediaType)
def test_a_request_with_too_many_messages_is_not_read(media_type: MediaType) -> None:
    def body(spans: int) -> bytes:
        if media_type is MediaType.PROTOBUF:
            inner = b"\x12\x00" * spans
            return b"\x0a" + bytes([len(inner) + 2]) + b"\x12" + bytes([len(inner)]) + inner
        return b'{"resourceSpans":[{"scopeSpans":[{"spans":[%b]}]}]}' % b",".join([b"{}"] * spans)

    assert read_export(Signal.TRACES, media_type, body(20), 22).items == 20
    with pytest.raises(TooManyMessages):
        read_export(Signal.TRACES, media_type, body(20), 21)
    with pytest.raises(TooManyMessages):
        read_export(Signal.TRACES, media_type, body(20), 1)


@pytest.mark.parametrize("tag", [b"\x0a", b"\x8a\x00", b"\x8a\x80\x00"])
def test_messages_are_counted_however_their_tags_are_written(tag: bytes) -> None:
    body = (tag + b"\x00") * 20
    assert not read_export(Signal.TRACES, MediaType.PROTOBUF, body, 20).empty
    with pytest.raises(TooManyMessages):
        read_export(Signal.TRACES, MediaType.PROTOBUF, body, 9)


def test_an_honest_request_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting loads the compiler, which takes a third of a second and a hundred megabytes."""
    body = traces(*[(TRACE, SPAN)] * 100, pad=400).SerializeToString()
    monkeypatch.setitem(sys.modules, "penstock.otlp.message_count", None)
    assert read_export(Signal.TRACES, MediaType.PROTOBUF, body, len(body) // 10).items == 100
    with pytest.raises(ImportError):
        read_export(Signal.TRACES, MediaType.PROTOBUF, body, 100)
