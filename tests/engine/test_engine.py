"""The engine with a real Spark: routes that do not wait for each other, replays that change nothing, Spark steps."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from penstock.destinations.archive import read_archive
from penstock.engine.engine import Engine
from penstock.engine.ledger import RouteState, Totals
from penstock.engine.pipeline import Pipeline
from penstock.testing.waiting import HANG, eventually
from tests.engine.projects import append, pipeline
from tests.support.duckdb_file import open_file

TO_DUCKDB_AND_FILES = """\
name: shop
sources:
  web: {type: file, path: ./web.ndjson}
routes:
  warehouse: {from: web, to: {type: duckdb, path: ./warehouse.duckdb, every: 100ms}}
  files: {from: web, to: {type: file, path: ./files, every: 100ms}}
"""


@contextmanager
def running(opened: Pipeline) -> Iterator[Event]:
    """The engine in a thread; stopped and drained at the end."""
    stopping = Event()
    thread = threading.Thread(target=Engine(opened).run, args=(stopping,))
    thread.start()
    try:
        yield stopping
    finally:
        stopping.set()
        thread.join(timeout=HANG)
        assert not thread.is_alive()


def rows(folder: Path) -> list[int]:
    with open_file(folder / "warehouse.duckdb", read_only=True) as connection:
        return [row[0] for row in connection.execute("SELECT n FROM events ORDER BY n").fetchall()]


def in_files(folder: Path) -> list[int]:
    found = [line for file in (folder / "files").glob("*.ndjson") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["n"] for line in found)


def in_archive(folder: Path) -> list[int]:
    return sorted(json.loads(line)["n"] for line in read_archive(folder / "data" / "archive"))


def numbers(start: int, end: int) -> list[bytes]:
    return [b'{"n": %d}' % n for n in range(start, end)]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process holds the database open, as a person with a shell would."""
    script = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    try:
        yield
    finally:
        holder.communicate()


def test_a_broken_destination_delays_nobody_else_and_catches_up_without_a_gap(tmp_path: Path) -> None:
    opened = pipeline(tmp_path, TO_DUCKDB_AND_FILES)
    append(opened, "web", numbers(0, 10))
    with running(opened):
        with locked(tmp_path / "warehouse.duckdb"):
            eventually(lambda: in_files(tmp_path) == list(range(10)), "the files have the first events")
            eventually(lambda: _state(opened, "warehouse") is RouteState.RETRYING, "the warehouse route says it waits")
            append(opened, "web", numbers(10, 20))
            eventually(lambda: in_files(tmp_path) == list(range(20)), "the files have the later events too")
            assert opened.ledger.totals("warehouse") == Totals()
        eventually(lambda: opened.ledger.totals("warehouse").loaded == 20, "the warehouse has caught up")
        assert _state(opened, "warehouse") is RouteState.RUNNING
    assert rows(tmp_path) == list(range(20))
    assert opened.ledger.totals("files") == Totals(items=20, loaded=20)


def _state(opened: Pipeline, route: str) -> RouteState | None:
    activity = opened.ledger.activity(route)
    return None if activity is None else activity.state


def once(opened: Pipeline) -> bool:
    return Engine(opened, once=True).run(Event())


def test_once_takes_what_is_there_and_ends_and_a_lost_checkpoint_doubles_nothing(tmp_path: Path) -> None:
    opened = pipeline(tmp_path, TO_DUCKDB_AND_FILES + "archive: true\n")
    append(opened, "web", numbers(0, 30))
    assert once(opened)
    assert rows(tmp_path) == in_files(tmp_path) == in_archive(tmp_path) == list(range(30))
    # Nobody asks for any of it again: the log may let go of all of it.
    assert opened.floors() == dict.fromkeys(opened.log.partitions(), 30)

    shutil.rmtree(tmp_path / "data" / "checkpoints")
    append(opened, "web", numbers(30, 40))
    assert once(opened)
    assert rows(tmp_path) == in_files(tmp_path) == in_archive(tmp_path) == list(range(40))


def test_a_batch_that_was_under_way_is_delivered_as_it_was_fixed_although_the_checkpoint_is_gone(
    tmp_path: Path,
) -> None:
    opened = pipeline(tmp_path, TO_DUCKDB_AND_FILES)
    partition = append(opened, "web", numbers(0, 30))
    opened.ledger.open_route("warehouse", {partition: 0})
    begun = opened.ledger.begin("warehouse", {partition: (0, 7)})
    assert begun is not None
    assert once(opened)
    ranges = [dict(batch.ranges) for batch in reversed(opened.ledger.batches("warehouse"))]
    assert ranges == [{partition: (0, 7)}, {partition: (7, 30)}]
    assert rows(tmp_path) == list(range(30))
