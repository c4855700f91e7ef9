"""OpenTelemetry's requests over HTTP and gRPC, answered with success once they are on disk."""

from penstock.registry import built_in

component = built_in(
    __name__, "Takes OpenTelemetry traces, logs and metrics (OTLP over HTTP and gRPC); success means on disk."
)
