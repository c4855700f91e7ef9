"""The log's options as people write them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from penstock.log.config import FsyncInterval, LogConfig
from penstock.log.format.head import read_head
from penstock.log.local_log import LocalLog
from tests.contract.log import config
from tests.log.samples import numbered, segments


def test_options_are_read_as_written() -> None:
    options = config(
        segment_bytes="10MB", fsync={"interval": "250ms"}, retention={"max_age": "2d", "max_bytes": "1GiB"}
    )
    assert options.segment_bytes == 10**7
    assert options.fsync == FsyncInterval(interval=0.25)
    assert (options.retention.max_age, options.retention.max_bytes) == (172_800, 2**30)
    assert LogConfig.model_validate_json(options.model_dump_json()) == options
    assert config(compaction="on").compaction
    assert not options.compaction


@pytest.mark.parametrize(
    "wrong",
    [
        {"fsync": "sometimes"},
        {"fsync": {"interval": "0s"}},
        {"compression": "gzip"},
        {"segment_byte": 5},
        {"retention": {"max_age": "soon"}},
        {"compaction": "sometimes"},
    ],
)
def test_a_wrong_option_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        config(**wrong)


def test_with_an_interval_records_are_durable_without_another_append(tmp_path: Path) -> None:
    with LocalLog(tmp_path, config(fsync={"interval": "20ms"})).writer("web") as writer:
        writer.append(numbered(range(10)))
        deadline = time.monotonic() + 10
        while (head := read_head(tmp_path / "0")) and head.durable < head.position:
            assert time.monotonic() < deadline
        assert head is not None
        assert head.durable == head.position > 0


def test_without_fsync_readers_see_records_that_are_not_yet_durable(tmp_path: Path) -> None:
    log = LocalLog(tmp_path, config(fsync="never"))
    with log.writer("web") as writer:
        writer.append(numbered(range(10)))
        head = read_head(tmp_path / "0")
        assert head is not None
        assert (head.durable, head.next_offset) == (0, 10)
        assert log.bounds(0).end == 10
    closed = read_head(tmp_path / "0")
    assert closed is not None
    assert closed.durable == closed.position


def test_a_segment_past_its_age_is_closed_by_the_next_append(tmp_path: Path) -> None:
    log = LocalLog(tmp_path, config(segment_age="0.001ms"))
    with log.writer("web") as writer:
        for n in range(3):
            writer.append(numbered([n]))
    assert [segment.stem for segment in segments(log)] == [f"{n:020d}" for n in range(3)]
