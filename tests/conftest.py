"""What all tests share: settings, and one PostgreSQL, started when the first test asks for it."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psutil
import pytest
import typer.testing
from hypothesis import settings

from penstock.redaction import forget_secrets
from tests.support.database import Database
from tests.support.fork_server import forking
from tests.support.postgres import postgres

# Hardly anything of what is imported and collected is garbage: looking for it takes a third of that time.
gc.disable()

# Whoever runs the tests in the background of a shell ignores SIGINT, and so would every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests that run side by side are given a width of 80, which tables on paper have not.
os.environ.pop("COLUMNS", None)

# The first call of a compiled function may compile it, which takes longer than any example should. What a change breaks
# must not depend on luck: the same code is always given the same examples, and `make fuzz` looks for others.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("repeatable")

# Each of the hundreds of calls of a verb would build all verbs anew.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]

# Loaded once for the hundreds of processes that tests fork (penstock/testing/forked.py).
multiprocessing.set_forkserver_preload(["tests.support.preloaded"])

SLOWEST = (
    "engine/stateful/test_sampling_routes.py",
    "chaos/test_conservation.py",
    "cli/test_lost_workers.py",
    "engine/stateful/test_holding_routes.py",
    "chaos/test_export.py",
    "chaos/test_waiting.py",
    "cli/test_run.py",
    "abuse/test_abuse.py",
    "chaos/test_state.py",
    "cli/test_backup_of_state.py",
    "engine/test_waiting.py",
    "engine/test_waiting_histories.py",
    "engine/test_full_disk.py",
    "log/test_compaction_crashes.py",
    "sources/postgres/test_tables.py",
    "engine/stateful/test_holding_model.py",
    "chaos/test_mirror.py",
    "sources/postgres/test_survival.py",
    "engine/test_gaps.py",
    "cli/test_hanging.py",
    "cli/test_stopping.py",
    "examples/test_readme.py",
    "cli/test_refused.py",
    "cli/test_locked_table.py",
    "warehouse/test_cases.py",
    "engine/test_many_tables.py",
    "engine/test_warehouse.py",
    "destinations/otlp/test_otlp_destination.py",
    "destinations/ga4/test_ga4_destination.py",
    "bench/test_events_to_postgres.py",
    "engine/test_spark_steps.py",
    "engine/stateful/test_following_routes.py",
    "engine/test_catching_up.py",
    "engine/test_engine.py",
    "examples/test_mirror.py",
    "examples/test_clickstream.py",
    "examples/test_plugin.py",
    "examples/test_fleet.py",
    "examples/test_traces.py",
    "cli/test_conflate.py",
    "cli/test_order.py",
    "cli/test_offset_moves.py",
    "cli/test_stepped_clock.py",
    "log/test_spark_source.py",
    "sources/http/test_connections.py",
    "cli/test_secrets.py",
    "abuse/test_otlp_abuse.py",
    "otlp/test_span_scan.py",
    "sampling/test_against_reference.py",
    "sampling/test_followed_sampler.py",
    "otlp/test_request_pieces.py",
)
"""The files that take longest begin first: one that begins last is waited for while the other cores have nothing to
do. A file that is not here, or no longer there, is no error, only its turn is another."""


GIGABYTES_EACH = 2
"""What a file takes at most, with its Spark, Python workers and PostgreSQL."""


def pytest_xdist_auto_num_workers() -> int:
    """Files at a time. They wait for processes a good part of the time, so there is one more than there are cores."""
    room = psutil.virtual_memory().total // (GIGABYTES_EACH << 30)
    return max(1, min(len(os.sched_getaffinity(0)) + 1, room))


def pytest_collection_finish() -> None:
    # What was collected and imported lives until the end: no use in looking through it again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_unconfigure() -> None:
    # DuckDB would print a list of what is never freed.
    gc.unfreeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    turns = {here / name: turn for turn, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: turns.get(item.path, len(SLOWEST)))


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with forking(tmp_path_factory.mktemp("fork-server")):
        yield


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> Iterator[None]:
    """A process learns the secrets of its config. This one reads many: what is one here is a word elsewhere."""
    yield
    forget_secrets()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture
def database(postgres_url: str) -> Database:
    """A schema of the test's own; it is not made yet."""
    return Database(postgres_url, f"t{uuid.uuid4().hex[:12]}")
