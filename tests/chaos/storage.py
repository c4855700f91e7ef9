"""What can happen to the data of a pipeline: an older copy is put back, its disk is full."""

from __future__ import annotations

import errno
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.chaos.project import Project
from tests.chaos.scene import Hazard, Scene


class OlderCopy(Hazard):
    """A backup is made under load. Later everything is killed, its data thrown away and the backup put in its place,
    beside a warehouse that has more than it."""

    name = "older copy"
    alone = True

    def strike(self, scene: Scene) -> str:
        project, copy = scene.project, scene.project.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        scene.wait_until_it_delivers()
        project.penstock("backup", str(copy))
        time.sleep(scene.rng.uniform(1.0, 4.0))
        with scene.poster.paused():
            scene.wait_until_all_is_delivered()
            scene.failed_before |= scene.failed().keys()
            project.end()
            shutil.rmtree(project.data)
            project.penstock("restore", str(copy))
            logged = scene.logged()
            scene.forgotten = Counter({route: (rows - logged).total() for route, rows in project.rows().items()})
            assert all(scene.forgotten[route] > 0 for route in project.rows()), "the copy is not older than the targets"
            project.start()
            project.wait_until_ready()
        return f"rows at the targets that it does not know: {dict(scene.forgotten)}"


class FullDisk(Hazard):
    """The disk of the ledger and of the checkpoints is full for a while. The log and the staged files have another."""

    name = "full disk"
    alone = True
    size = "256m"
    seconds = 8.0

    def strike(self, scene: Scene) -> str:
        project = scene.project
        with self._small_disk(project):
            project.start()
            project.wait_until_ready()
            scene.wait_until_it_delivers()
            ballast, said = project.data / "ballast", project.log.stat().st_size
            fills, deadline = 0, time.monotonic() + self.seconds
            # What is removed meanwhile makes room, which is taken again.
            with ballast.open("ab", buffering=0) as file:
                while time.monotonic() < deadline:
                    fills += _fill(file)
                    time.sleep(0.05)
            complaints = _complaints(project.log, said)
            ballast.unlink()
            assert complaints, "nobody wanted to write to the full disk"
            scene.wait_until_it_delivers()
        project.start()
        project.wait_until_ready()
        return f"full {fills} times, {complaints} lines about it"

    @contextmanager
    def _small_disk(self, project: Project) -> Iterator[None]:
        """The data in a file system of its own, but for the log and the stage. Nothing runs before and behind it."""
        project.end()
        kept = project.folder / "kept"
        project.data.rename(kept)
        project.data.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size},mode=0700", "tmpfs", project.data], check=True)
        beside = ("log", "stage")
        for each in kept.iterdir():
            if each.name in beside:
                (project.data / each.name).symlink_to(each)
            else:
                _copy(each, project.data)
        try:
            yield
        finally:
            project.end()
            for each in project.data.iterdir():
                if each.name in beside:
                    continue
                old = kept / each.name
                if old.is_dir():
                    shutil.rmtree(old)
                _copy(each, kept)
            subprocess.run(["umount", "-l", project.data], check=True)
            project.data.rmdir()
            kept.rename(project.data)


def _fill(file: IO[bytes]) -> int:
    """Write until there is no room. Returns whether there was any."""
    written = 0
    while True:
        try:
            written += file.write(b"x" * 4096)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return int(written > 0)


def _complaints(log: Path, since: int) -> int:
    """How many lines about a full disk the engine has written; those about the collector's counters do not count."""
    with log.open("rb") as file:
        file.seek(since)
        return sum((b"No space left" in line or b"disk is full" in line) and b"metrics" not in line for line in file)


def _copy(path: Path, into: Path) -> None:
    subprocess.run(["cp", "-a", path, into], check=True)
