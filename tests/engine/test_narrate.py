"""The engine's counters, as Prometheus sees them."""

from __future__ import annotations

import socket

import pytest

from penstock.engine import events
from penstock.errors import RouteError
from tests.support import plain_http
from tests.support.ports import free_port


def test_a_committed_batch_shows_in_the_metrics() -> None:
    port = free_port()
    events.serve_metrics("127.0.0.1", port)
    events.batch_committed("told", 1, loaded=7, skipped=2, failed=1, waiting=0, seconds=0.5)
    shown = plain_http.get(f"http://127.0.0.1:{port}/metrics").text
    assert 'penstock_items_total{outcome="loaded",route="told"} 7.0' in shown
    assert 'penstock_batches_total{route="told"} 1.0' in shown


def test_a_port_in_use_is_said_with_the_option_to_change() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RouteError, match=r"engine\.metrics"):
            events.serve_metrics("127.0.0.1", taken.getsockname()[1])
