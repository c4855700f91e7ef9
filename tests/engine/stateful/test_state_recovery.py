"""What a checkpoint on disk tells of its state, and of where its first batch begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.spark.spark_checkpoints import (
    has_batches,
    has_other_state,
    keep_start,
    keep_state_name,
    lacks_state,
)


def test_the_start_of_the_first_batch_stays_once_spark_has_begun_it(tmp_path: Path) -> None:
    checkpoint = tmp_path / "out"
    assert keep_start(checkpoint, {0: 5}) == {0: 5}
    assert keep_start(checkpoint, {0: 7, 1: 2}) == {0: 7, 1: 2}
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / "0").touch()
    assert has_batches(checkpoint)
    assert keep_start(checkpoint, {0: 70, 1: 20}) == {0: 7, 1: 2}


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
