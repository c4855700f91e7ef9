"""``penstock run`` with a destination that takes rows later: they wait, and arrive though nothing new comes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, sqlite_url
from penstock.testing.waiting import HANG, eventually
from tests.cli.projects import Project

PICKY = """
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from penstock.destinations.contract import NULL_TABLE_BOOK, Capabilities, Receipt, Stager, TableReceipt, WaitingRows
from penstock.destinations.file.config import FileConfig
from penstock.destinations.file.destination import FileDestination
from penstock.outcome import PLACE_COLUMNS, PLACE_SCHEMA
from penstock.registry import Component, Kind

component = Component(Kind.DESTINATION, "picky", "Takes rows later", "picky:PickyConfig", "picky:Picky")


class PickyConfig(FileConfig):
    type: str = "picky"


class PickyStager(Stager):
    def __init__(self, lines):
        self._lines, self._places = lines, []

    def add(self, batch, read=None):
        outcome = self._lines.add(batch, read)
        self._places += outcome.kept.select(PLACE_COLUMNS).to_pylist()
        return outcome

    def finish(self):
        return [replace(part, header=json.dumps(self._places)) for part in self._lines.finish()]


class Picky(FileDestination):
    capabilities = Capabilities(leaves_waiting=True)

    def stager(self, directory, casts):
        return PickyStager(super().stager(directory, casts))

    def write(self, batch, parts, book=NULL_TABLE_BOOK):
        if not parts or self.config.path.with_suffix(".open").exists():
            return super().write(batch, parts, book)
        rows = [place for part in parts for place in json.loads(part.header)]
        places = pa.RecordBatch.from_pylist(rows, schema=PLACE_SCHEMA)
        return Receipt([TableReceipt(parts[0].table, 0, waiting=[WaitingRows("all", places, "closed", 0.1)])])
"""


def test_rows_that_a_destination_does_not_take_yet_arrive_though_nothing_new_comes(fresh: Project) -> None:
    site = fresh.folder / "site"
    (site / "picky-1.dist-info").mkdir(parents=True)
    (site / "picky.py").write_text(PICKY)
    (site / "picky-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: picky\nVersion: 1\n")
    (site / "picky-1.dist-info" / "entry_points.txt").write_text("[penstock.components]\npicky = picky:component\n")
    (fresh.folder / "web.ndjson").write_text("".join(f'{{"n": {n}, "k": {n % 2}}}\n' for n in range(6)))
    fresh.config.write_text(
        "name: shop\nsources: {web: {type: file, path: ./web.ndjson}}\nroutes:\n  out:\n    from: web\n"
        "    steps: [{where: n < 5}, {dedupe: {key: [n], window: 1h}}]\n    to: {type: picky, path: ./out}\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "penstock.cli.main"]

    def route() -> dict[str, int]:
        asked = subprocess.run([*command, "status", "--json"], cwd=fresh.folder, env=environment, capture_output=True)
        found: dict[str, int] = json.loads(asked.stdout)["routes"][0]
        return found

    def waits() -> int:
        file = Layout(fresh.folder / "data").ledger
        if not file.exists():
            return -1
        ledger = Ledger.open(sqlite_url(file), "shop")
        try:
            return ledger.account("out").postponed
        finally:
            ledger.close()

    with (fresh.folder / "stderr").open("w") as log:
        running = subprocess.Popen([*command, "run"], cwd=fresh.folder, env=environment, stderr=log)
    try:
        eventually(lambda: waits() == 5, "all rows wait")
        waiting = route()
        counts = [waiting[name] for name in ("in", "loaded", "skipped", "held_by_steps", "waits_at_destination")]
        assert counts == [6, 0, 1, 0, 5]
        (fresh.folder / "out.open").touch()
        eventually(lambda: waits() == 0, "they are taken")
        running.send_signal(signal.SIGTERM)
        running.wait(HANG)
    finally:
        running.kill()
    told = (fresh.folder / "stderr").read_text()
    assert running.returncode == 0, told
    settled = route()
    assert (settled["loaded"], settled["waiting"], settled["adds_up"]) == (5, 0, True)
    lines = [line for file in Path(fresh.folder / "out").glob("*.ndjson") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["n"] for line in lines) == [0, 1, 2, 3, 4]
