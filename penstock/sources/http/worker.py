"""One worker process of the collector: ``python -m penstock.sources.http.worker``, started by ``HttpSource``."""

from __future__ import annotations

from penstock.sources.http.app import Collector
from penstock.sources.http.config import HttpConfig
from penstock.sources.http.worker_process import run_worker

if __name__ == "__main__":
    run_worker(HttpConfig, Collector)
