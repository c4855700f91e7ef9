"""One worker process: ``python -m penstock.sources.otlp.receiver_worker``, started by ``OtlpSource``."""

from __future__ import annotations

from penstock.sources.http.worker_process import run_worker
from penstock.sources.otlp.config import OtlpConfig
from penstock.sources.otlp.receiver import Receiver

if __name__ == "__main__":
    run_worker(OtlpConfig, Receiver)
