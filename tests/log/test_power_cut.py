"""The head is written in place and rarely synced: after a power cut the disk may hold an older one. It still fits."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.log.local_log import LocalLog
from penstock.log.maintenance.compaction import compact
from penstock.log.maintenance.verify import verify
from tests.contract.log import config
from tests.log.samples import START, numbers, repeating, segments

OPTIONS = config(segment_bytes=6000, retention={"max_bytes": 8_000})
EVERYTHING = {0: 10**6}


class Disk:
    """Copies a log whenever names in its partition become durable, with the oldest head that a power cut could leave.

    Made while the log has a writer that was just opened: that has synced its head.
    """

    def __init__(self, log: LocalLog, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._partition = log.partition_dir(0)
        self._copies = copies
        self._head = (self._partition / "head").read_bytes()
        self.states: list[tuple[Path, list[tuple[int, int]]]] = []
        """Each copy, and what readers found in the log at that moment."""
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self._synced)

    def _synced(self, fd: int) -> None:
        self._sync(fd)
        head = self._partition / "head"
        if os.path.samestat(os.fstat(fd), head.stat()):
            self._head = head.read_bytes()
        elif stat.S_ISDIR(os.fstat(fd).st_mode) and os.path.samestat(os.fstat(fd), self._partition.stat()):
            self._keep()

    def _keep(self) -> None:
        state = self._copies / str(len(self.states))
        shutil.copytree(self._partition.parent, state)
        (state / "0" / "head").write_bytes(self._head)
        self.states.append((state, numbers(LocalLog(self._partition.parent))))


@pytest.mark.parametrize(
    "clean",
    [
        pytest.param(lambda log: log.apply_retention(EVERYTHING, START), id="retention"),
        pytest.param(lambda log: compact(log, EVERYTHING), id="compaction"),
    ],
)
def test_a_power_cut_after_a_roll_and_a_removal_leaves_a_log_that_opens(
    quick_disk: Path, clean: Callable[[LocalLog], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LocalLog(quick_disk / "log", OPTIONS)
    with log.writer("web") as writer:
        disk = Disk(log, quick_disk / "cuts", monkeypatch)
        for n in range(0, 150, 5):
            writer.append(repeating(range(n, n + 5), 60))
            if n % 50 == 45:
                before = len(segments(log))
                clean(log)
                assert len(segments(log)) < before
    assert len(disk.states) > 10
    for state, seen in disk.states:
        cut = LocalLog(state, OPTIONS)
        assert [check.is_whole for check in verify(cut)] == [True]
        with cut.writer("web"):
            assert numbers(cut) == seen
