"""A step of another package, found by its entry point, that runs in Spark between two Arrow steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import HANG

PLUGIN = """
from penstock.config.component import StepConfig
from penstock.registry import Component, Kind
from penstock.steps.contract import SparkStep

component = Component(Kind.STEP, "only_even", "Keeps even numbers", "only_even:StepConfig", "only_even:OnlyEven")


class OnlyEven(SparkStep[StepConfig]):
    def apply(self, frame):
        return frame.where("cast(get_json_object(cast(data as string), '$.n') as int) % 2 = 0")
"""

PIPELINE = """\
name: shop
sources: {numbers: {type: file, path: ./numbers.ndjson}}
routes:
  out:
    from: numbers
    steps: [{where: "n > 3"}, {only_even: {}}, {where: "n < 16"}]
    to: {type: file, path: ./out}
"""


def test_a_spark_step_of_another_package_between_arrow_steps_accounts_for_every_record(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "only_even-1.dist-info").mkdir(parents=True)
    (site / "only_even.py").write_text(PLUGIN)
    (site / "only_even-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: only-even\nVersion: 1\n")
    (site / "only_even-1.dist-info" / "entry_points.txt").write_text(
        "[penstock.components]\nonly_even = only_even:component\n"
    )
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    lines = [*(json.dumps({"n": n}) for n in range(20)), "nonsense"]
    (tmp_path / "numbers.ndjson").write_text("\n".join(lines) + "\n")

    def penstock(*words: str) -> str:
        command = [sys.executable, "-m", "penstock.cli.main", *words, "-c", str(tmp_path / "pipeline.yaml")]
        environment = {**os.environ, "PYTHONPATH": str(site)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG)
        assert done.returncode == 0, done.stderr
        return done.stdout

    penstock("run", "--once")
    found = [line for file in (tmp_path / "out").glob("*.ndjson") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["n"] for line in found) == [4, 6, 8, 10, 12, 14]
    (route,) = json.loads(penstock("status", "--json"))["routes"]
    assert route["skipped_by"] == {"where": 4, "only_even": 8, "where#2": 2}
    assert (route["in"], route["loaded"], route["skipped"], route["failed"]) == (21, 6, 14, 1)
