"""What a checkpoint on disk tells of its state, and of where its first batch begins."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.engine.delivery.log_gaps import open_route
from penstock.engine.ledger import Operator
from penstock.engine.operate.offset_control import acknowledge
from penstock.engine.pipeline import Pipeline
from penstock.engine.spark.spark_checkpoints import (
    has_batches,
    has_other_state,
    keep_start,
    keep_state_name,
    lacks_state,
    next_start,
)
from penstock.engine.stateful.state_recovery import cannot_catch_up
from penstock.errors import PenstockError
from penstock.log.read_ranges import offsets_to_json
from tests.engine.projects import append, commit, pipeline


def test_the_start_of_the_first_batch_stays_once_spark_has_begun_it(tmp_path: Path) -> None:
    checkpoint = tmp_path / "out"
    assert keep_start(checkpoint, {0: 5}) == {0: 5}
    assert keep_start(checkpoint, {0: 7, 1: 2}) == {0: 7, 1: 2}
    write_end(checkpoint, 0, {0: 9, 1: 4})
    assert has_batches(checkpoint)
    assert keep_start(checkpoint, {0: 70, 1: 20}) == {0: 7, 1: 2}


def test_a_partition_that_comes_later_begins_where_the_ledger_stands_and_that_stays_once_spark_has_begun_it(
    tmp_path: Path,
) -> None:
    checkpoint = tmp_path / "out"
    keep_start(checkpoint, {0: 7})
    write_end(checkpoint, 0, {0: 9})
    assert next_start(checkpoint) == {0: 7}
    assert keep_start(checkpoint, {0: 9, 1: 300}) == {0: 7, 1: 300}
    assert keep_start(checkpoint, {0: 9, 1: 400}) == {0: 7, 1: 400}
    write_end(checkpoint, 1, {0: 9, 1: 410})
    assert keep_start(checkpoint, {0: 9, 1: 410}) == {0: 7, 1: 400}
    (checkpoint / "commits").mkdir()
    (checkpoint / "commits" / "1").touch()
    assert next_start(checkpoint) == {0: 9, 1: 410}


def write_end(checkpoint: Path, batch: int, end: dict[int, int]) -> None:
    """As Spark does before a batch."""
    (checkpoint / "offsets").mkdir(exist_ok=True)
    text = json.dumps(offsets_to_json(end))
    (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{text}")


HOLDING = """\
name: shop
log: {segment_bytes: 4KB, retention: {max_age: 1ms}}
sources: {web: {type: file, path: ./web.ndjson}}
routes:
  out: {from: web, steps: [dedupe: {key: k, window: 1h}], to: {type: "null"}}
"""


def after_retention(folder: Path, committed: int) -> tuple[Pipeline, int]:
    """A log of 40 records whose beginning is gone, and the oldest one that is left."""
    opened = pipeline(folder, HOLDING)
    partition = append(opened, "web", [b'{"text": "%s"}' % (b"x" * 400)] * 40)
    opened.ledger.open_route("out", {partition: 0})
    commit(opened, "out", partition, committed)
    opened.log.apply_retention({partition: 40}, datetime.now(UTC))
    oldest = opened.log.bounds(partition).oldest
    assert 10 < oldest < 40
    return opened, oldest


def test_an_older_state_cannot_catch_up_without_the_records_that_it_lacks(tmp_path: Path) -> None:
    opened, oldest = after_retention(tmp_path, committed=40)
    plan = opened.plan("out")
    assert cannot_catch_up(opened.ledger, opened.log, plan, {0: oldest - 1})
    assert not cannot_catch_up(opened.ledger, opened.log, plan, {0: oldest})
    assert not cannot_catch_up(opened.ledger, opened.log, plan, {})


def test_records_that_are_gone_can_be_given_up_also_where_others_wait_around_them(tmp_path: Path) -> None:
    opened, oldest = after_retention(tmp_path, committed=5)
    with pytest.raises(PenstockError, match="PEN-RTE-005"):
        open_route(opened.log, opened.ledger, "out", ["web"])
    with pytest.raises(PenstockError, match="PEN-ENG-075"):
        acknowledge(opened, "out", 5, oldest, None, Operator("ada"))
    acknowledge(opened, "out", 5, oldest - 1, None, Operator("ada"))
    assert open_route(opened.log, opened.ledger, "out", ["web"])[0].committed == oldest
    # The state has not seen them, and never will.
    assert cannot_catch_up(opened.ledger, opened.log, opened.plan("out"), {0: 5})


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A checkpoint of a query with state, after its first batch."""
    keep_state_name(tmp_path, "dedupe3")
    for name in ("offsets", "commits", "state"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0").touch()
    return tmp_path


def test_a_checkpoint_that_is_new_suits_every_step(tmp_path: Path) -> None:
    assert not any(has_other_state(tmp_path, name) for name in ("", "dedupe3", None))


def test_state_is_of_the_step_that_it_was_begun_with(used: Path) -> None:
    keep_state_name(used, "gather3")
    assert {name: has_other_state(used, name) for name in ("dedupe3", "dedupe4", "gather3", "", None)} == {
        "dedupe3": False, "dedupe4": True, "gather3": True, "": True, None: False,
    }  # fmt: skip


def test_state_that_was_there_and_is_gone_is_missed(used: Path) -> None:
    assert not lacks_state(used)
    (used / "state" / "0").unlink()
    assert lacks_state(used)
    assert not has_other_state(used, "dedupe3")
    (used / "commits" / "0").unlink()
    assert not lacks_state(used), "its first batch is not done"


def test_a_step_that_comes_finds_no_state_of_its_own(used: Path) -> None:
    (used / "state" / "0").unlink()
    (used / "state-name.txt").unlink()
    assert has_other_state(used, "dedupe3")
    assert not has_other_state(used, "")
