"""A disk that fills up while a warehouse is loaded: nothing is lost or doubled, and it goes on when there is room."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from penstock.engine.ledger import Totals
from penstock.testing.waiting import eventually
from tests.engine.projects import append_all, pipeline
from tests.engine.test_engine import running
from tests.support.small_disk import fill, small_disk

TO_DUCKDB = """\
name: shop
data_dir: {data}
engine: {{restart_backoff: 100ms, restart_backoff_max: 500ms}}
sources:
  web: {{type: file, path: ./web.ndjson}}
routes:
  warehouse: {{from: web, max_records: 500, steps: {steps}, to: {{type: duckdb, path: {warehouse}, every: 50ms}}}}
"""
COUNT = 5_000
IN_PAIRS = f'[gather: {{key: [pair], until: "n >= {COUNT // 2}", at_most: 1h}}]'
"""The first half of the events waits, each for its own one of the second half."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, 32) as disk:
        yield disk


@pytest.mark.parametrize(
    ("on_it", "steps"),
    [
        ("the warehouse", "[]"),
        ("the staged files", "[]"),
        ("everything", "[]"),
        ("the state", IN_PAIRS),
        ("everything", IN_PAIRS),
    ],
)
def test_a_disk_that_fills_up_during_a_load_has_every_event_once_when_there_is_room(
    tmp_path: Path, disk: Path, caplog: pytest.LogCaptureFixture, on_it: str, steps: str
) -> None:
    data = (disk if on_it == "everything" else tmp_path) / "data"
    folder = {"the staged files": "stage", "the state": "checkpoints"}.get(on_it)
    warehouse = (tmp_path if folder else disk) / "warehouse.duckdb"
    opened = pipeline(tmp_path, TO_DUCKDB.format(data=data, warehouse=warehouse, steps=steps))
    if folder:
        (disk / folder).mkdir()
        (data / folder).symlink_to(disk / folder)
    noise = random.Random(1)
    row = b'{"n": %d, "pair": %d, "text": "%s"}'
    append_all(opened, "web", [row % (n, n % (COUNT // 2), noise.randbytes(300).hex().encode()) for n in range(COUNT)])

    with running(opened):
        eventually(lambda: opened.ledger.totals("warehouse").items > 0, "the first batch is committed", every=0.01)
        ballast = fill(disk)
        said = "No space left on device"
        eventually(lambda: said in caplog.text and "again in" in caplog.text, "the route says why it waits")
        assert opened.ledger.totals("warehouse").loaded < COUNT
        ballast.unlink()
        eventually(lambda: opened.ledger.totals("warehouse").loaded == COUNT, "all is loaded")
    with duckdb.connect(str(warehouse), read_only=True) as connection:
        found = connection.execute("SELECT count(*), count(DISTINCT n), min(n), max(n) FROM events").fetchone()
    assert found == (COUNT, COUNT, 0, COUNT - 1)
    assert opened.ledger.totals("warehouse") == Totals(items=COUNT, loaded=COUNT)
