"""What a checkpoint on disk tells of its state, and of where its first batch begins."""

from __future__ import annotations

from pathlib import Path

from penstock.engine.spark.spark_checkpoints import has_batches, keep_start, lacks_state


def test_the_start_of_the_first_batch_stays_once_spark_has_begun_it(tmp_path: Path) -> None:
    checkpoint = tmp_path / "out"
    assert keep_start(checkpoint, {0: 5}) == {0: 5}
    assert keep_start(checkpoint, {0: 7, 1: 2}) == {0: 7, 1: 2}
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / "0").touch()
    assert has_batches(checkpoint)
    assert keep_start(checkpoint, {0: 70, 1: 20}) == {0: 7, 1: 2}


def test_state_that_was_there_and_is_gone_is_missed(tmp_path: Path) -> None:
    assert not lacks_state(tmp_path)
    for name in ("commits/0", "state/0"):
        (tmp_path / name).mkdir(parents=True)
    assert not lacks_state(tmp_path)
    (tmp_path / "state" / "0").rmdir()
    assert lacks_state(tmp_path)
