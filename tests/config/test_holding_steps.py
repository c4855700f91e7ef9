"""Steps that keep records back: what can stand beside them in a route is told when the config is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.config.loading import load
from penstock.engine.pipeline import Pipeline, route_plan
from penstock.engine.route_plan import PlannedStep, RoutePlan
from penstock.errors import PenstockError
from penstock.steps.contract import SparkStep, StepConfig
from penstock.steps.gather.config import GatherConfig

HEAD = "name: shop\nsources: {web: {type: file, path: ./web.ndjson}}\nroutes:\n  out:\n    from: web\n"
DEDUPE = "{dedupe: {key: id, window: 1h}}"
GATHER = "{gather: {key: [a, b.c], until: \"status = 'closed'\", at_most: 10m}}"


def config(folder: Path, text: str) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(HEAD + text)
    return path


def plan(folder: Path, text: str) -> RoutePlan:
    return route_plan(load(config(folder, text)), "out")


@pytest.mark.parametrize(
    "step", ["dedupe: {key: id, window: 99999999d}", "gather: {key: id, until: done, at_most: 99999999d}"]
)
def test_times_that_no_clock_holds_are_refused(tmp_path: Path, step: str) -> None:
    with pytest.raises(PenstockError, match="must be at most 3155760000"):
        plan(tmp_path, f"    steps: [{{{step}}}]\n    to: {{type: 'null'}}\n")


def test_a_key_is_one_field_or_several(tmp_path: Path) -> None:
    found = plan(tmp_path, f"    steps: [{GATHER}]\n    to: {{type: 'null'}}\n")
    assert found.holding is not None
    assert isinstance(found.holding.config, GatherConfig)
    assert found.holding.config.key == ("a", "b.c")
    assert found.holding.config.at_most == 600
    assert "control:out" in found.sources


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"    steps: [{DEDUPE}, {GATHER}]\n    to: {{type: 'null'}}\n", "a route has one such step at most"),
        (f"    on_error: stop\n    steps: [{DEDUPE}]\n    to: {{type: 'null'}}\n", "cannot stop before one"),
        (
            f"    steps: [{DEDUPE}]\n    to: {{type: duckdb, path: ./w.duckdb, load: mirror}}\n",
            "a mirror needs every change in its order",
        ),
        ("    steps: [{dedupe: {key: [], window: 1h}}]\n    to: {type: 'null'}\n", "key"),
        ("    steps: [{dedupe: {key: id, window: 0}}]\n    to: {type: 'null'}\n", "window"),
        ("    steps: [{gather: {key: id, until: done}}]\n    to: {type: 'null'}\n", "at_most"),
        ("    steps: [{gather: {key: id, until: 'nope(', at_most: 1m}}]\n    to: {type: 'null'}\n", "until"),
    ],
)
def test_what_cannot_work_is_refused_by_name_and_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PenstockError, match=said) as refused:
        load(config(tmp_path, text))
    assert "pipeline.yaml" in str(refused.value)


class OfAnotherPackage(PlannedStep):
    """A planned step that runs in Spark."""

    @property
    def implementation(self) -> type[SparkStep[Any]]:
        return SparkStep


def test_a_step_in_spark_beside_one_is_refused_when_the_route_starts(tmp_path: Path) -> None:
    found = plan(tmp_path, f"    steps: [{DEDUPE}]\n    to: {{type: 'null'}}\n")
    found.check_steps()
    other = OfAnotherPackage("counting", "counting", StepConfig())
    with pytest.raises(PenstockError, match="PEN-STP-004"):
        replace(found, steps=(*found.steps, other)).check_steps()


def test_what_the_log_keeps_for_what_waits_can_be_limited(tmp_path: Path) -> None:
    text = f"    steps: [{GATHER}]\n    to: {{type: 'null'}}\n"
    assert plan(tmp_path, text).max_hold_bytes is None
    assert plan(tmp_path, f"    max_hold_bytes: 20GiB\n{text}").max_hold_bytes == 20 * 2**30


def test_its_keys_are_hashed_with_what_only_its_ledger_knows(tmp_path: Path) -> None:
    text = f"    steps: [{DEDUPE}]\n    to: {{type: 'null'}}\n"
    (tmp_path / "other").mkdir()
    secrets = []
    for folder in (tmp_path, tmp_path / "other"):
        opened = Pipeline.open(load(config(folder, text)))
        secrets.append(opened.plan("out").key_secret)
        opened.ledger.close()
    assert len(set(secrets)) == 2
    assert all(len(secret) == 16 for secret in secrets)
