"""Files that are compressed or replaced in place, also in the middle of a line: every line once, and no half line."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from pathlib import Path
from threading import Event
from typing import TextIO

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog
from penstock.record import Header
from penstock.sources.file.config import FileConfig
from penstock.sources.file.file_progress import Positions, load_positions, save_positions
from penstock.sources.file.file_reader import FileReader
from penstock.sources.file.follow_files import FileFollower
from penstock.testing.source import log_records, numbers
from tests.sources.file.test_rotation import following, live, read_once, write

__all__ = ["live"]


class Follower:
    """A source that follows, a round at a time, in this thread."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self._folder = folder
        self._writer = LocalLog(folder / "log", LogConfig(fsync="never")).writer("orders")
        self._positions: Positions = load_positions(self._summary, LocalLog(folder / "log"), self._writer.partition)
        config = FileConfig.model_validate({"path": folder / pattern})
        reading = FileReader(config, "orders", self._writer, self._positions, Event(), self._save)
        self._following = FileFollower(config, reading)

    @property
    def _summary(self) -> Path:
        return self._folder / "state/positions.json"

    def _save(self) -> None:
        save_positions(self._summary, self._writer.next_offset, self._positions)

    def rounds(self, count: int = 3, once: bool = False) -> list[int]:
        """What is in the log after so many looks."""
        for _ in range(count):
            self._following.read_new(once)
        found = log_records(self._folder / "log")
        assert not [record.data for record in found if Header.MALFORMED in record.headers]
        return numbers(found)

    def end(self, killed: bool = False) -> None:
        self._following.close()
        if not killed:
            self._save()
        self._writer.close()


def compress(file: Path) -> None:
    packed = file.with_name(f"{file.name}.gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()


def replace(file: Path, content: str) -> None:
    new = file.with_name(f".{file.name}.new")
    new.write_text(content)
    new.replace(file)


ENDS = ['{"n":1}\n{"n":2}\n', '{"n":1}\n{"n":2}', '{"n":2}']
IDS = ["ended", "open line", "nothing read yet"]


@pytest.mark.parametrize("content", ENDS, ids=IDS)
def test_a_file_that_is_compressed_in_place_is_not_read_twice(tmp_path: Path, live: Path, content: str) -> None:
    expected = [1, 2] if "1" in content else [2]
    live.write_text(content)
    follower = Follower(tmp_path, "in/app.log*")
    follower.rounds()
    compress(live)
    assert follower.rounds() == expected
    follower.end()
    assert read_once(tmp_path, "in/app.log*") == expected


@pytest.mark.parametrize("content", ENDS, ids=IDS)
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_file_that_is_compressed_while_nobody_reads_is_read_on(
    tmp_path: Path, live: Path, content: str, killed: bool
) -> None:
    live.write_text(content)
    follower = Follower(tmp_path, "in/app.log*")
    follower.rounds()
    follower.end(killed)
    compress(live)
    assert read_once(tmp_path, "in/app.log*") == ([1, 2] if "1" in content else [2])


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_rest_that_only_a_known_copy_still_has_is_read_from_it(tmp_path: Path, live: Path, killed: bool) -> None:
    live.write_text('{"n":1}\n{"n":2}')
    follower = Follower(tmp_path, "in/app.log*")
    follower.rounds()
    live.with_name("app.log.gz").write_bytes(gzip.compress(live.read_bytes()))
    assert follower.rounds() == [1]
    follower.end(killed)
    live.unlink()
    assert read_once(tmp_path, "in/app.log*") == [1, 2]
    assert read_once(tmp_path, "in/app.log*") == [1, 2]


@pytest.mark.parametrize("begun", ['{"n":1}\n{"n":2}', '{"n":1}\n{"n":', '{"n":1}\n', '{"n":1'])
@pytest.mark.parametrize("pattern", ["in/app.log", "in"])
def test_a_file_that_is_replaced_by_a_longer_version_of_itself_is_read_on(
    tmp_path: Path, live: Path, begun: str, pattern: str
) -> None:
    live.write_text(begun)
    follower = Follower(tmp_path, pattern)
    follower.rounds()
    replace(live, '{"n":1}\n{"n":2}\n{"n":3}\n')
    assert follower.rounds() == [1, 2, 3]
    write(live, 4)
    assert follower.rounds() == [1, 2, 3, 4]
    follower.end()
    assert read_once(tmp_path, pattern) == [1, 2, 3, 4]


def test_what_is_written_to_the_old_file_after_it_was_replaced_is_read_too(tmp_path: Path, live: Path) -> None:
    live.write_text('{"n":1}\n{"n":2}')
    follower = Follower(tmp_path, "in/app.log")
    with live.open("a") as writer:
        follower.rounds()
        replace(live, '{"n":1}\n{"n":2}\n{"n":3}\n')
        follower.rounds(1)
        writer.write('\n{"n":4}\n')
        writer.flush()
        assert sorted(follower.rounds()) == [1, 2, 3, 4]
    follower.end()


def test_a_source_that_runs_reads_what_was_compressed_and_replaced_once(tmp_path: Path, live: Path) -> None:
    write(live, 1)
    write(live, 2, end="")
    with following(tmp_path, "in/app.log*") as wait:
        wait([1])
        replace(live, '{"n":1}\n{"n":2}\n{"n":3}')
        wait([1, 2])
        compress(live)
        wait([1, 2, 3])
        write(live, 4)
        wait([1, 2, 3, 4])


class Rewriting(RuleBasedStateMachine):
    """Whatever is written, in lines or halves of them, rotated, compressed, replaced and read in whichever order, by a
    source that follows, stops and is killed: each number is in the log once, and no half line ever is.

    What is removed stays open here: whether a filesystem uses an inode again at once is not for us to say.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        (self.folder / "in").mkdir()
        self.live = self.folder / "in/app.log"
        self.written = self.generation = 0
        self.open_line = False
        self.removed: list[TextIO] = []
        self.follower = Follower(self.folder, "in")

    @rule()
    def write_a_line(self) -> None:
        self._finish_line()
        self.written += 1
        self._append(f'{{"n":{self.written}}}\n')

    @rule()
    def write_a_line_without_its_newline(self) -> None:
        self._finish_line()
        self.written += 1
        self._append(f'{{"n":{self.written}}}')
        self.open_line = True

    @rule()
    def rename_and_create(self) -> None:
        if self.live.exists():
            self.live.rename(self._next_generation())
            self.open_line = False

    @rule()
    def copy_and_truncate(self) -> None:
        if self.live.exists():
            shutil.copyfile(self.live, self._next_generation())
            self.live.write_text("")
            self.open_line = False

    @rule()
    def compress_in_place(self) -> None:
        if self.live.exists() and not self.live.with_name("app.log.gz").exists():
            self._hold(self.live)
            compress(self.live)
            self.open_line = False

    @rule()
    def compress_an_older_one(self) -> None:
        older = [file for file in sorted(self.live.parent.glob("app.log-*")) if file.suffix != ".gz"]
        if older:
            self._hold(older[0])
            compress(older[0])

    @rule()
    def replace_by_itself(self) -> None:
        if self.live.exists():
            self._hold(self.live)
            replace(self.live, self.live.read_text())

    @rule()
    def replace_by_a_longer_version(self) -> None:
        if self.live.exists():
            self._finish_line()
            self.written += 1
            self._hold(self.live)
            replace(self.live, self.live.read_text() + f'{{"n":{self.written}}}\n')

    @rule()
    def look(self) -> None:
        self.follower.rounds(1)

    @rule()
    def stop_and_start(self) -> None:
        self.follower.end()
        self.follower = Follower(self.folder, "in")

    @rule()
    def kill_and_start(self) -> None:
        self.follower.end(killed=True)
        self.follower = Follower(self.folder, "in")

    @rule()
    def read_to_the_end(self) -> None:
        self.stop_and_start()
        assert sorted(self.follower.rounds(1, once=True)) == list(range(1, self.written + 1))
        self.stop_and_start()

    @invariant()
    def nothing_is_doubled(self) -> None:
        found = numbers(log_records(self.folder / "log"))
        assert len(found) == len(set(found))

    def teardown(self) -> None:
        self.follower.end()
        for file in self.removed:
            file.close()
        shutil.rmtree(self.folder)

    def _hold(self, file: Path) -> None:
        self.removed.append(file.open())

    def _append(self, text: str) -> None:
        with self.live.open("a") as file:
            file.write(text)

    def _finish_line(self) -> None:
        if self.open_line:
            self._append("\n")
        self.open_line = False

    def _next_generation(self) -> Path:
        self.generation += 1
        return self.live.with_name(f"app.log-{self.generation}")


Rewriting.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestRewriting = Rewriting.TestCase
