"""Programs on three hosts, each with two files, that log through the OpenTelemetry SDK.

python apps.py [records per file] [port]
"""

from __future__ import annotations

import logging
import sys

from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource

HOSTS, FILES = ("edge-1", "edge-2", "edge-3"), ("/var/log/access.log", "/var/log/app.log")


def log_from(host: str, records: int, port: int) -> None:
    provider = LoggerProvider(resource=Resource.create({"host.name": host, "service.name": "shop"}))
    exporter = OTLPLogExporter(f"http://127.0.0.1:{port}/v1/logs")
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter, max_queue_size=100_000))
    logger = logging.getLogger(host)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(LoggingHandler(logger_provider=provider))
    for number in range(records):
        for file in FILES:
            logger.log(
                logging.WARNING if number % 10 == 0 else logging.INFO,
                "request %d was served",
                number,
                extra={"logfile": file, "n": number},
            )
    provider.shutdown()


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 4318
    for host in HOSTS:
        log_from(host, records, port)
    print(f"sent {records * len(HOSTS) * len(FILES)} records of {len(HOSTS)} hosts and {len(FILES)} files each")


if __name__ == "__main__":
    main()
