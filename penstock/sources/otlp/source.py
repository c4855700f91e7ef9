"""The OTLP source: the workers of a collector, whose requests are OpenTelemetry's."""

from __future__ import annotations

from contextlib import ExitStack
from threading import Event

from penstock.sources.http.source import CollectorSource, reserve_address
from penstock.sources.otlp.config import OtlpConfig


class OtlpSource(CollectorSource[OtlpConfig]):
    """All workers serve HTTP and, if it is on, gRPC, each into its own partition of the log."""

    worker_module = "penstock.sources.otlp.receiver_worker"

    def reserve_other_ports(self, stack: ExitStack, stopping: Event) -> OtlpConfig:
        if self.config.grpc is None:
            return self.config
        host, port = reserve_address(self.config.grpc, stack, stopping)
        return self.config.model_copy(update={"grpc": f"[{host}]:{port}" if ":" in host else f"{host}:{port}"})
