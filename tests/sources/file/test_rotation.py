"""Files that are renamed, copied, truncated and replaced while they are read: nothing lost, nothing doubled."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.sources.contract import SourceContext
from penstock.sources.file.config import FileConfig
from penstock.sources.file.discovery import may_be_copy
from penstock.sources.file.source import FileSource
from penstock.testing.source import log_records, numbers
from penstock.testing.waiting import eventually


def context(folder: Path) -> SourceContext:
    return SourceContext("orders", folder / "log", "{}", folder / "state")


def source(folder: Path, path: str, **options: object) -> FileSource:
    config = FileConfig.model_validate({"path": folder / path, "poll": "10ms", **options})
    return FileSource(config, context(folder))


def read_once(folder: Path, path: str = "in/*", **options: object) -> list[int]:
    source(folder, path, **options).run(Event(), once=True)
    return numbers(log_records(folder / "log"))


@contextmanager
def following(folder: Path, path: str) -> Iterator[Callable[[list[int]], None]]:
    """A source that follows; gives a wait for the numbers that must be in the log, in order."""
    stopping = Event()
    thread = Thread(target=source(folder, path).run, args=(stopping,))
    thread.start()
    try:
        yield lambda expected: eventually(
            lambda: numbers(log_records(folder / "log")) == expected, f"{expected} in the log"
        )
    finally:
        stopping.set()
        thread.join(20)
    assert not thread.is_alive()


@pytest.fixture
def live(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in/app.log"


def write(file: Path, *values: int, end: str = "\n") -> None:
    with file.open("a") as out:
        out.write("\n".join(f'{{"n":{value}}}' for value in values) + end)


PATTERNS = ["in/app.log", "in/app.log*", "in"]
"""Whether or not the older generations are among the files to read, the outcome is the same."""


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rename_and_create_while_following(tmp_path: Path, live: Path, pattern: str) -> None:
    write(live, 1)
    with following(tmp_path, pattern) as wait, live.open("a") as writer:
        wait([1])
        writer.write('{"n":2}\n')
        writer.flush()
        live.rename(live.with_name("app.log.1"))
        writer.write('{"n":3}\n')
        writer.flush()
        wait([1, 2, 3])
        write(live, 10)
        wait([1, 2, 3, 10])
        writer.write('{"n":4}\n')  # the writer has not noticed yet
        writer.flush()
        wait([1, 2, 3, 10, 4])


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("stage", ["before", "between", "after"])
def test_rename_and_create_while_nobody_reads(tmp_path: Path, live: Path, pattern: str, stage: str) -> None:
    write(live, 1)
    read_once(tmp_path, pattern)
    write(live, 2)
    if stage == "before":
        read_once(tmp_path, pattern)
    live.rename(live.with_name("app.log.1"))
    if stage == "between" and pattern != PATTERNS[0]:
        read_once(tmp_path, pattern)
    write(live, 10, 11)
    assert read_once(tmp_path, pattern) == [1, 2, 10, 11]
    assert read_once(tmp_path, pattern) == [1, 2, 10, 11]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_copy_and_truncate_while_nobody_reads(tmp_path: Path, live: Path, pattern: str) -> None:
    write(live, 1, 2)
    read_once(tmp_path, pattern)
    write(live, 3)
    shutil.copyfile(live, live.with_name("app.log.1"))
    os.truncate(live, 0)
    write(live, 10, 11, 12, 13)
    assert read_once(tmp_path, pattern) == [1, 2, 3, 10, 11, 12, 13]
    assert read_once(tmp_path, pattern) == [1, 2, 3, 10, 11, 12, 13]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_copy_and_truncate_while_following(tmp_path: Path, live: Path, pattern: str) -> None:
    write(live, 1, 2)
    with following(tmp_path, pattern) as wait:
        wait([1, 2])
        shutil.copyfile(live, live.with_name("app.log.1"))
        write(live, 3)  # between copy and truncation such a line would be lost to anyone; here it is seen before
        wait([1, 2, 3])
        shutil.copyfile(live, live.with_name("app.log.1"))
        os.truncate(live, 0)
        write(live, 10)
        wait([1, 2, 3, 10])
    assert read_once(tmp_path, pattern) == [1, 2, 3, 10]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_copy_and_truncate_again_and_again_into_one_copy(tmp_path: Path, live: Path, pattern: str) -> None:
    copy = live.with_name("app.log.1")
    for number in range(0, 30, 10):
        write(live, number, number + 1)
        read_once(tmp_path, pattern)
        write(live, number + 2)
        shutil.copyfile(live, copy)
        os.truncate(live, 0)
        write(live, number + 3)
        read_once(tmp_path, pattern)
    expected = [number + step for number in range(0, 30, 10) for step in range(4)]
    assert read_once(tmp_path, pattern) == expected


def test_copy_and_truncate_and_then_a_rename_while_nobody_reads(tmp_path: Path, live: Path) -> None:
    write(live, 1)
    read_once(tmp_path)
    write(live, 2)
    shutil.copyfile(live, live.with_name("app.log-1"))
    os.truncate(live, 0)
    write(live, 3)
    live.rename(live.with_name("app.log-2"))
    assert read_once(tmp_path) == [1, 2, 3]
    assert read_once(tmp_path) == [1, 2, 3]


def test_a_file_that_was_removed_is_read_to_its_end(tmp_path: Path, live: Path) -> None:
    write(live, 1)
    with following(tmp_path, "in/app.log") as wait, live.open("a") as writer:
        wait([1])
        live.unlink()
        writer.write('{"n":2}\n{"n":3}')
        writer.flush()
        wait([1, 2, 3])


@pytest.mark.parametrize("pattern", PATTERNS[:1])
def test_a_last_line_without_newline_counts_when_its_file_is_rotated_away(
    tmp_path: Path, live: Path, pattern: str
) -> None:
    write(live, 1)
    write(live, 2, end="")
    with following(tmp_path, pattern) as wait:
        wait([1])
        live.rename(live.with_name("app.log.1"))
        wait([1, 2])


def test_a_file_that_was_written_anew_with_more_bytes_is_a_new_one(tmp_path: Path, live: Path) -> None:
    write(live, 1, 2)
    read_once(tmp_path)
    live.write_text('{"n":10}\n{"n":11}\n{"n":12}\n')
    assert read_once(tmp_path) == [1, 2, 10, 11, 12]


def test_a_file_that_is_replaced_by_a_longer_version_of_itself_is_read_on(tmp_path: Path, live: Path) -> None:
    write(live, 1, 2)
    read_once(tmp_path)
    longer = live.with_name(".app.log.tmp")
    write(longer, 1, 2, 3)
    longer.replace(live)
    assert read_once(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("again", [(1,), (1, 2), (1, 3)])
def test_a_new_file_that_begins_like_the_one_that_was_renamed_is_read_whole(
    tmp_path: Path, live: Path, again: tuple[int, ...]
) -> None:
    write(live, 1, 2)
    read_once(tmp_path)
    live.rename(live.with_name("app.log.1"))
    for number in again:
        write(live, number)
        read_once(tmp_path)
    assert read_once(tmp_path) == [1, 2, *again]


def test_files_with_the_same_content_are_all_read(tmp_path: Path, live: Path) -> None:
    for name in ("a.ndjson", "b.ndjson", "part-1", "part-2"):
        write(live.with_name(name), 1, 2)
    assert read_once(tmp_path) == [1, 2] * 4


def test_an_inode_that_is_used_again_is_a_new_file(tmp_path: Path, live: Path) -> None:
    write(live, 1)
    read_once(tmp_path)
    live.rename(live.with_name("other.ndjson"))
    live.with_name("other.ndjson").write_text('{"n":5}\n{"n":6}\n')
    assert read_once(tmp_path) == [1, 5, 6]


def test_a_folder_is_read_with_all_below_it_except_what_is_hidden(tmp_path: Path, live: Path) -> None:
    (live.parent / "deep/er").mkdir(parents=True)
    (live.parent / ".git").mkdir()
    write(live.with_name("b.ndjson"), 2)
    write(live.parent / "deep/er/c.ndjson", 3)
    write(live.with_name("a.txt"), 7)
    write(live.with_name(".half.ndjson"), 8)
    write(live.parent / ".git/x.ndjson", 9)
    assert read_once(tmp_path, "in", pattern="*.ndjson") == [2, 3]


@pytest.mark.parametrize(
    ("name", "of", "expected"),
    [
        ("a.log.1", "a.log", True),
        ("a.log-20260131", "a.log", True),
        ("a.log.1.gz", "a.log", True),
        ("a.log.gz", "a.log", True),
        ("a.log.2.gz", "a.log.1", True),
        ("a.log", "a.log", True),
        ("a.log.2", "a.log.1", False),
        ("a.log", "a.log.1", False),
        ("b.log.1", "a.log", False),
        ("in-2.ndjson", "in-1.ndjson", False),
    ],
)
def test_names_that_rotation_gives(name: str, of: str, expected: bool) -> None:
    assert may_be_copy(name, of) is expected


def test_positions_survive_the_removal_of_old_segments(tmp_path: Path, live: Path) -> None:
    """Retention and compaction take closed segments: what they held is known without them."""
    small = SourceContext("orders", tmp_path / "log", '{"segment_bytes": 600}', tmp_path / "state")
    for name in "abcdef":
        write(live.with_name(f"{name}.ndjson"), *range(5))
    config = FileConfig.model_validate({"path": tmp_path / "in", "batch_bytes": 20})
    stopping = Event()
    FileSource(config, small).run(stopping, once=True)
    segments = sorted((tmp_path / "log/0").glob("*.seg"))
    assert len(segments) > 3
    summary = tmp_path / "state/positions.json"
    assert summary.exists()
    for segment in segments[:-1]:
        segment.unlink()
    before = len(log_records(tmp_path / "log"))
    FileSource(config, small).run(stopping, once=True)
    assert len(log_records(tmp_path / "log")) == before


class Rotation(RuleBasedStateMachine):
    """Whatever is written, rotated and read in whichever order, each number is in the log once."""

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.folder = Path(tempfile.mkdtemp())
        (self.folder / "in").mkdir()
        self.live = self.folder / "in/app.log"
        self.written = self.generation = 0
        self.read_up_to = 0

    @rule()
    def write_a_line(self) -> None:
        self.written += 1
        write(self.live, self.written)

    @rule()
    def rename_and_create(self) -> None:
        if self.live.exists():
            self.generation += 1
            self.live.rename(self.live.with_name(f"app.log-{self.generation}"))

    @rule()
    def copy_and_truncate(self) -> None:
        if self.live.exists():
            self.generation += 1
            shutil.copyfile(self.live, self.live.with_name(f"app.log-{self.generation}"))
            os.truncate(self.live, 0)

    @rule()
    def read(self) -> None:
        if any((self.folder / "in").iterdir()):
            assert sorted(read_once(self.folder)) == list(range(1, self.written + 1))

    @invariant()
    def nothing_is_doubled(self) -> None:
        found = numbers(log_records(self.folder / "log"))
        assert len(found) == len(set(found))

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


Rotation.TestCase.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
TestRotation = Rotation.TestCase
