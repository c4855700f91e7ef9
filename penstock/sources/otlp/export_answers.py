"""Answers to export requests: OTLP's responses and errors, in the encoding of the request."""

from __future__ import annotations

import orjson
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from penstock.sources.http.responses import Answer, HeaderList, refusal_message
from penstock.sources.otlp.exports import Export, MediaType
from penstock.sources.otlp.rpc_status import code_of, status_json, status_protobuf


def accepted(export: Export, media_type: MediaType) -> Answer:
    """Everything is stored. Spans that no reader can use are named, as a partial success."""
    if media_type is MediaType.PROTOBUF:
        return Answer(200, _TYPES[media_type], accepted_protobuf(export))
    if not export.rejected:
        return Answer(200, _TYPES[media_type], b"{}")
    # A 64-bit integer is a text in protobuf's JSON.
    partial = {"rejectedSpans": str(export.rejected), "errorMessage": _rejection(export)}
    return Answer(200, _TYPES[media_type], orjson.dumps({"partialSuccess": partial}))


def accepted_protobuf(export: Export) -> bytes:
    """The response message; it is empty after a full success, for every signal."""
    if not export.rejected:
        return b""
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = export.rejected
    response.partial_success.error_message = _rejection(export)
    return bytes(response.SerializeToString())


def refused(refusal: Answer, media_type: MediaType) -> Answer:
    """The same refusal with a ``google.rpc.Status`` as its body."""
    code, message = code_of(refusal.status), refusal_message(refusal)
    body = status_json(code, message) if media_type is MediaType.JSON else status_protobuf(code, message)
    others = [(name, value) for name, value in refusal.headers if name != "content-type"]
    return Answer(refusal.status, [*_TYPES[media_type], *others], body)


def _rejection(export: Export) -> str:
    return (
        f"{export.rejected} of {export.items} spans have no trace id of 16 bytes or no span id of 8 bytes, not all zero"
    )


_TYPES: dict[MediaType, HeaderList] = {media_type: [("content-type", str(media_type))] for media_type in MediaType}
