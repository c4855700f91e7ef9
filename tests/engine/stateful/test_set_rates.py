"""The percentage of a policy, as operators set it: it reaches the sampler, and holds."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.engine.ledger import Operator
from penstock.engine.operate.samplers import set_rate
from penstock.engine.pipeline import Pipeline
from penstock.engine.route_sources import control_source
from penstock.engine.stateful.route_control import RouteControl
from penstock.errors import PenstockError
from penstock.record import records
from tests.engine.projects import pipeline

CONFIG = """\
name: traces
sources: {spans: {type: otlp, listen: 127.0.0.1:0}}
routes:
  kept:
    from: spans
    steps:
      - sample:
          policies:
            - {name: base, type: remote_probabilistic, rate_from: ledger, default_rate: 1}
            - {name: other, type: remote_probabilistic, rate_from: ./rate, default_rate: 1}
    to: {type: "null"}
  plain: {from: spans, to: {type: "null"}}
"""
ADA = Operator("ada@example", "a quiet week")


@pytest.fixture
def opened(tmp_path: Path) -> Pipeline:
    (tmp_path / "rate").write_text("3")
    return pipeline(tmp_path, CONFIG)


def told(opened: Pipeline) -> list[tuple[str, float]]:
    """What the sampler was told, by the engine's control records."""
    found = [
        orjson.loads(record.data or b"{}")
        for partition in opened.log.partitions([control_source("kept")])
        for batch in opened.log.read(partition, 0)
        for record in records(batch)
        if record.namespace == "rate"
    ]
    return [(each["policy"], each["percentage"]) for each in found if each["policy"] == "base"]


def control(opened: Pipeline) -> RouteControl:
    """Of an engine that has just started."""
    return RouteControl(opened.log, opened.ledger, opened.plan("kept"))


def test_a_rate_that_is_set_is_told_once_and_again_after_a_restart(opened: Pipeline) -> None:
    running = control(opened)
    running.tell_once()
    assert told(opened) == []
    set_rate(opened, "kept", "base", 12.5, ADA)
    running.tell_once()
    running.tell_once()
    assert told(opened) == [("base", 12.5)]
    set_rate(opened, "kept", "base", 0, ADA)
    running.tell_once()
    control(opened).tell_once()
    assert told(opened) == [("base", 12.5), ("base", 0), ("base", 0)]


@pytest.mark.parametrize(
    ("route", "policy", "percentage", "code"),
    [
        ("plain", "base", 5, "PEN-ENG-079"),
        ("kept", "other", 5, "PEN-ENG-083"),
        ("kept", "nobody", 5, "PEN-ENG-083"),
        ("kept", "base", -1, "PEN-ENG-084"),
        ("kept", "base", 100.5, "PEN-ENG-084"),
        ("kept", "base", float("nan"), "PEN-ENG-084"),
    ],
)
def test_what_cannot_be_set_is_refused(opened: Pipeline, route: str, policy: str, percentage: float, code: str) -> None:
    with pytest.raises(PenstockError, match=code):
        set_rate(opened, route, policy, percentage, ADA)
    assert opened.ledger.settings("kept") == {}


def test_the_verb_says_when_it_holds(opened: Pipeline, tmp_path: Path) -> None:
    config = tmp_path / "pipeline.yaml"
    done = CliRunner().invoke(app, ["sample", "rate", "kept", "base", "7.5", "--config", str(config)])
    assert (done.exit_code, done.stdout) == (0, "kept: policy base samples 7.5 % of traces from the next start on\n")
    control(opened).tell_once()
    assert told(opened) == [("base", 7.5)]
