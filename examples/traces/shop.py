"""A small shop of three services, instrumented with the OpenTelemetry SDK: sends the traces of its orders.

    python shop.py [number of orders] [port]

What happens to an order is decided by its number, so every run gives the same traces but for their ids.
"""

from __future__ import annotations

import sys

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Context, SpanKind, StatusCode, set_span_in_context

START = 1_790_000_000_000_000_000
MS = 1_000_000


def provider(service: str, port: int) -> TracerProvider:
    made = TracerProvider(resource=Resource.create({"service.name": service}))
    exporter = OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces")
    made.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=100_000))
    return made


def work(
    tracer: Tracer, name: str, begin: int, millis: int, parent: Context | None, **attributes: int | str
) -> Context:
    """A span of so many milliseconds, as a context for its children."""
    span = tracer.start_span(name, parent, SpanKind.SERVER, attributes=attributes, start_time=begin)
    if attributes.get("failed"):
        span.set_status(StatusCode.ERROR, "the card was declined")
        span.record_exception(ValueError("declined"), timestamp=begin + millis * MS)
    span.end(begin + millis * MS)
    return set_span_in_context(span)


def order(number: int, web: Tracer, checkout: Tracer, stock: Tracer) -> None:
    """One in fifty is declined, one in forty is slow, one in a hundred costs a lot."""
    begin = START + number * 10 * MS
    slow, total = number % 40 == 7, 950 if number % 100 == 13 else number % 90
    root = work(web, "POST /order", begin, 400 if slow else 40, None, order=number)
    paid = {"failed": 1} if number % 50 == 3 else {}
    buying = work(checkout, "charge", begin + MS, 350 if slow else 20, root, **{"order.total": total}, **paid)
    work(stock, "reserve", begin + 2 * MS, 10, buying, items=number % 7)


def main() -> None:
    orders = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 4318
    providers = [provider(service, port) for service in ("web", "checkout", "stock")]
    web, checkout, stock = (each.get_tracer("shop", "1.0") for each in providers)
    for number in range(orders):
        order(number, web, checkout, stock)
    for each in providers:
        each.shutdown()
    print(f"sent {3 * orders} spans of {orders} traces")


if __name__ == "__main__":
    main()
