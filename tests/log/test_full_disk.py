"""When there is no room an append fails as a whole; when there is room again, the same append works."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import LogFull
from penstock.log.local_log import LocalLog
from tests.contract.log import config
from tests.log.samples import numbered, numbers
from tests.support.small_disk import small_disk

_WITH_A_QUOTA = """
import resource, sys
from pathlib import Path
from penstock.errors import LogFull
from penstock.log.local_log import LocalLog
from tests.contract.log import config
from tests.log.samples import numbered, numbers

def quota(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

log = LocalLog(Path(sys.argv[1]), config(compression="none"))
with log.writer("web") as writer:
    for size in (50_000, 70_001, 100_000):
        quota(size)
        while True:
            n = writer.next_offset
            try:
                writer.append(numbered(range(n, n + 20), size=100))
            except LogFull as full:
                assert full.code == "PEN-LOG-004", full
                break
        assert writer.next_offset == n
        assert numbers(log) == [(i, i) for i in range(n)]
    quota(resource.RLIM_INFINITY)
    assert writer.append(numbered(range(n, n + 20), size=100)) == range(n, n + 20)
again = LocalLog(Path(sys.argv[1]))
with again.writer("web") as writer:
    assert writer.recovered is None
assert numbers(again) == [(i, i) for i in range(n + 20)]
print(n)
"""


def test_a_quota_refuses_appends_whole_until_it_is_raised(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", _WITH_A_QUOTA, str(tmp_path)]
    ran = subprocess.run(command, env={"PYTHONPATH": root}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 400


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, 1) as disk:
        yield disk


def test_a_full_file_system_refuses_appends_whole_until_there_is_room(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(b"x" * 600_000)
    log = LocalLog(disk / "log", config(compression="none", segment_bytes=100_000))
    with log.writer("web") as writer:
        refused = 0
        while refused < 3:
            n = writer.next_offset
            try:
                writer.append(numbered(range(n, n + 20), size=500))
            except LogFull:
                refused += 1
                assert writer.next_offset == n
        assert numbers(log) == [(i, i) for i in range(n)]
        ballast.unlink()
        for start in range(n, n + 200, 20):
            assert writer.append(numbered(range(start, start + 20), size=500)) == range(start, start + 20)
    with log.writer("web") as writer:
        assert writer.recovered is None
    assert numbers(log) == [(i, i) for i in range(n + 200)]
