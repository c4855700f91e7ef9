"""A receiver of OTLP over HTTP that is as strict as the specification, remembers what it took, and fails when told to.

Written from the specification and not from the destination: it reads bodies with opentelemetry-proto, and answers as
the collector does.
"""

from __future__ import annotations

import gzip
import ssl
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.message import DecodeError, Message
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

PROTOBUF = "application/x-protobuf"
_SIGNALS: dict[str, tuple[type[Message], type[Message], str]] = {
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse, "rejected_spans"),
    "/v1/logs": (ExportLogsServiceRequest, ExportLogsServiceResponse, "rejected_log_records"),
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse, "rejected_data_points"),
}


@dataclass(frozen=True)
class Reply:
    """What to do with the next request instead of taking it."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """As text instead of a protobuf message."""
    rejected: int = 0
    """A partial success, with so many that were not accepted."""
    message: str = ""
    takes: bool = False
    """Whether the request is taken, whatever the answer is."""
    hangs_up: bool = False
    """Close the connection instead of an answer."""
    delay: float = 0.0


TAKE = Reply(takes=True)
LOSE_BEFORE = Reply(hangs_up=True)
LOSE_AFTER = Reply(hangs_up=True, takes=True)


def partial(rejected: int, message: str = "") -> Reply:
    return Reply(rejected=rejected, message=message, takes=True)


@dataclass
class Taken:
    """A request that was taken."""

    path: str
    body: bytes
    request: Any
    encoding: str
    headers: dict[str, str]


@dataclass
class OtlpReceiver:
    requests: list[Taken] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    """What it did not take: the status that it answered, and why."""
    attempts: int = 0
    replies: deque[Reply] = field(default_factory=deque)
    """For the next requests, one each; then it takes all that is right."""
    max_body: int = 20 << 20
    """The largest body, unpacked."""
    dislikes: Callable[[Any], bool] = lambda _: False
    """Whether a request has something that this receiver will never take."""
    token: str = ""
    port: int = 0
    scheme: str = "http"

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def spans(self) -> list[Any]:
        """All spans that it took, in the order in which they came."""
        return [
            span
            for taken in self.requests
            if taken.path == "/v1/traces"
            for resource in taken.request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class Refusal(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def read(receiver: OtlpReceiver, path: str, headers: Any, raw: bytes) -> Taken:
    """Raises ``Refusal`` for what the specification does not allow."""
    if path not in _SIGNALS:
        raise Refusal(404, f"no signal at {path}")
    if receiver.token and headers["Authorization"] != f"Bearer {receiver.token}":
        raise Refusal(401, f"bad token: {headers['Authorization']}")
    if headers["Content-Type"] != PROTOBUF:
        raise Refusal(415, f"content type {headers['Content-Type']}")
    encoding = headers["Content-Encoding"] or ""
    if encoding not in ("", "gzip"):
        raise Refusal(400, f"content encoding {encoding}")
    try:
        body = gzip.decompress(raw) if encoding else raw
    except (OSError, EOFError, zlib.error) as error:
        raise Refusal(400, f"no gzip: {error}") from error
    if len(body) > receiver.max_body:
        raise Refusal(413, f"body of {len(body)} bytes")
    try:
        request: Any = _SIGNALS[path][0].FromString(body)
    except DecodeError as error:
        raise Refusal(400, f"no protobuf: {error}") from error
    if receiver.dislikes(request):
        raise Refusal(400, "an entry that nobody takes")
    return Taken(path, body, request, encoding, dict(headers.items()))


@contextmanager
def otlp_receiver(tls: ssl.SSLContext | None = None) -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver(scheme="http" if tls is None else "https")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.attempts += 1
            reply = receiver.replies.popleft() if receiver.replies else TAKE
            time.sleep(reply.delay)
            if reply.takes:
                try:
                    receiver.requests.append(read(receiver, self.path, self.headers, raw))
                except Refusal as refusal:
                    receiver.refused.append((refusal.status, str(refusal)))
                    self._answer(refusal.status, PROTOBUF, Status(code=3, message=str(refusal)).SerializeToString())
                    return
            if reply.hangs_up:
                self.close_connection = True
            elif reply.status == 200:
                _, kind, counter = _SIGNALS[self.path]
                answer: Any = kind()
                if reply.rejected or reply.message:
                    setattr(answer.partial_success, counter, reply.rejected)
                    answer.partial_success.error_message = reply.message
                self._answer(200, PROTOBUF, answer.SerializeToString())
            elif reply.body is not None:
                self._answer(reply.status, "text/plain", reply.body, reply.headers)
            else:
                text = Status(code=14, message=reply.message).SerializeToString()
                self._answer(reply.status, PROTOBUF, text, reply.headers)

        def _answer(self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
