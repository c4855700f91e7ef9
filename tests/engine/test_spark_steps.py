"""A step of another package, found by its entry point, that runs in Spark between Arrow steps: every record is
accounted for, and where the destination refuses some, parts of a batch are carried anew by Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from penstock.engine.failed.failed_store import FailedStore
from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, Totals, sqlite_url
from penstock.testing.waiting import HANG

PLUGIN = """
import json
from pathlib import Path

from penstock.config.component import StepConfig
from penstock.destinations.contract import NULL_TABLE_BOOK
from penstock.destinations.file.config import FileConfig
from penstock.destinations.file.destination import FileDestination
from penstock.errors import RefusedError
from penstock.registry import Component, Kind
from penstock.steps.contract import FATE, SparkStep
from pyspark.sql import Row, functions
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StringType, StructField, StructType

first = Component(Kind.STEP, "first_five", "Keeps five records", "fussy:StepConfig", "fussy:FirstFive")
loser = Component(Kind.STEP, "loser", "Loses a record", "fussy:StepConfig", "fussy:Loser")
step = Component(Kind.STEP, "only_even", "Keeps even numbers", "fussy:StepConfig", "fussy:OnlyEven")
destination = Component(Kind.DESTINATION, "fussy", "Takes all but 8", "fussy:FussyConfig", "fussy:Fussy")


class OnlyEven(SparkStep[StepConfig]):
    def apply(self, frame):
        odd = "cast(get_json_object(cast(data as string), '$.n') as int) % 2 <> 0"
        told = frame.withColumn(FATE, functions.expr(f"if({odd}, 'skipped', null)"))
        return told.mapInArrow(noted, told.schema)


class FirstFive(SparkStep[StepConfig]):
    def apply(self, frame):
        schema = StructType([*frame.schema, StructField(FATE, StringType())])
        grouped = frame.withColumn("shard", functions.lit(0)).groupBy("shard")
        return grouped.transformWithState(Counting(), schema, "append", "none")


class Counting(StatefulProcessor):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key, rows, timer_values):
        seen = self.seen.get()[0] if self.seen.exists() else 0
        for row in rows:
            seen += 1
            yield Row(**{**row.asDict(), FATE: None if seen <= 5 else "skipped"})
        self.seen.update((seen,))

    def close(self):
        pass


class Loser(SparkStep[StepConfig]):
    def apply(self, frame):
        return frame.where("offset <> 7").withColumn(FATE, functions.lit(None).cast("string"))


def noted(batches):
    import pyspark

    Path(__file__).with_name("pyspark.txt").write_text(pyspark.__file__)
    yield from batches


class FussyConfig(FileConfig):
    type: str = "fussy"


class Fussy(FileDestination):
    def write(self, batch, parts, book=NULL_TABLE_BOOK):
        rows = [json.loads(line)["n"] for part in parts for line in Path(part.path).read_text().splitlines()]
        if 8 in rows:
            raise RefusedError("PEN-TST-002", "8 is unlucky")
        return super().write(batch, parts, book)
"""

PIPELINE = """\
name: shop
engine: {restart_backoff: 100ms, restart_backoff_max: 200ms}
sources: {numbers: {type: file, path: ./numbers.ndjson}}
routes:
  lenient: {from: numbers, steps: [{where: "n > 3"}, {only_even: {}}], to: {type: fussy, path: ./lenient}}
  strict:
    from: numbers
    on_error: stop
    steps: [{where: "n > 3"}, {only_even: {}}]
    to: {type: fussy, path: ./strict}
  few: {from: numbers, max_records: 4, steps: [{first_five: {}}], to: {type: file, path: ./few}}
  losing: {from: numbers, steps: [{loser: {}}], to: {type: file, path: ./losing}}
  between:
    from: numbers
    steps: [{where: "n > 3"}, {only_even: {}}, {where: "n < 12"}]
    to: {type: file, path: ./between}
"""


def numbers(folder: Path) -> list[int]:
    found = [line for file in folder.glob("*.ndjson") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["n"] for line in found)


def test_every_record_is_accounted_for_and_the_refused_one_is_found_and_stopped_before(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "fussy-1.dist-info").mkdir(parents=True)
    (site / "fussy.py").write_text(PLUGIN)
    (site / "fussy-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: fussy\nVersion: 1\n")
    (site / "fussy-1.dist-info" / "entry_points.txt").write_text(
        "[penstock.components]\nonly_even = fussy:step\nfirst_five = fussy:first\nloser = fussy:loser\n"
        "fussy = fussy:destination\n"
    )
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "numbers.ndjson").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(14)) + "nonsense\n")
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    ran = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "run", "--once"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=2 * HANG,
    )
    assert ran.returncode == 3, ran.stderr
    assert numbers(tmp_path / "lenient") == [4, 6, 10, 12]
    assert numbers(tmp_path / "strict") == [4, 6]
    layout = Layout(tmp_path / "data")
    ledger = Ledger.open(sqlite_url(layout.ledger), "shop")
    assert ledger.totals("lenient") == Totals(items=15, loaded=4, skipped=9, failed=2)
    failed = FailedStore(layout.failed).read("lenient", ledger.failed_extent("lenient"))
    by_offset = {entry.record.offset: entry for entry in failed}
    assert set(by_offset) == {8, 14}
    assert by_offset[8].error == "8 is unlucky"
    standing = ledger.standing("strict")
    assert standing.halt is not None
    assert (standing.positions[0].committed, standing.halt.offset) == (8, 8)

    assert numbers(tmp_path / "between") == [4, 6, 8, 10]
    between = ledger.account("between")
    assert between.skipped_by == {"where": 4, "only_even": 5, "where#2": 1}
    assert between.totals == Totals(items=15, loaded=4, skipped=10, failed=1)

    # What a step keeps in Spark's state is there in the next batch.
    assert "TransformWithState" not in ran.stderr
    assert len(ledger.batches("few")) == 4
    assert len(numbers(tmp_path / "few")) == 5
    assert ledger.account("few").skipped_by == {"first_five": 9}
    assert ledger.totals("few") == Totals(items=15, loaded=5, skipped=9, failed=1)

    # A step that loses a record is found out: nothing of the batch is delivered, and the books stay empty.
    assert numbers(tmp_path / "losing") == []
    assert ledger.totals("losing") == Totals()
    assert "PEN-STP-001: step 'loser' was given 14 records and accounts for 13." in ran.stderr
    ledger.close()

    # PySpark was not unpacked and compiled anew by each worker.
    assert (site / "pyspark.txt").read_text() == pyspark.__file__
