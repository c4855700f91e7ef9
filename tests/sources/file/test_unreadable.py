"""Files that may not be read, or are gone by the time they would be: said once, and the others are read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.testing.source import log_records, numbers
from penstock.testing.waiting import eventually
from tests.sources.file.test_replaced import Follower
from tests.sources.file.test_rotation import live, source, write
from tests.support.privileges import obey_file_modes

__all__ = ["live"]


def read_as_a_service(folder: Path, pattern: str) -> list[int]:
    """What is in the log after a run to the end by a user for whom the modes of files count."""
    failure: list[BaseException] = []

    def run() -> None:
        obey_file_modes()
        try:
            source(folder, pattern).run(Event(), once=True)
        except BaseException as error:
            failure.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return numbers(log_records(folder / "log"))


@pytest.mark.parametrize("pattern", ["in/app.log", "in/app.log*"])
def test_a_copy_that_may_not_be_read_does_not_keep_the_truncated_file(
    tmp_path: Path, live: Path, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(live, 1)
    read_as_a_service(tmp_path, pattern)
    write(live, 2)
    copy = live.with_name("app.log.1")
    shutil.copyfile(live, copy)
    copy.chmod(0)
    os.truncate(live, 0)
    write(live, 10, 11, 12)
    assert read_as_a_service(tmp_path, pattern) == [1, 10, 11, 12]
    assert f"{copy} may hold a rest of {live}, which was truncated: Permission denied" in caplog.text
    write(live, 13)
    assert read_as_a_service(tmp_path, pattern) == [1, 10, 11, 12, 13]


def test_a_file_whose_original_may_no_longer_be_read_is_read_on(tmp_path: Path, live: Path) -> None:
    write(live, 1)
    read_as_a_service(tmp_path, "in/app.log*")
    write(live, 2)
    shutil.copyfile(live, live.with_name("app.log.1"))
    live.chmod(0)
    assert read_as_a_service(tmp_path, "in/app.log*") == [1, 2]


@pytest.mark.parametrize("name", ["a.ndjson", "a.parquet"])
def test_a_file_that_may_not_be_read_is_named_once_and_read_when_it_may(
    tmp_path: Path, live: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    closed = live.with_name(name)
    if name.endswith("parquet"):
        pq.write_table(pa.table({"n": [2]}), closed)
    else:
        write(closed, 2)
    closed.chmod(0)
    write(live, 1)
    follower = Follower(tmp_path, "in")
    looks: list[list[int]] = []

    def look() -> None:
        obey_file_modes()
        looks.append(follower.rounds(5))
        closed.chmod(0o644)
        looks.append(follower.rounds(2))

    thread = Thread(target=look)
    thread.start()
    thread.join()
    follower.end()
    assert looks == [[1], [1, 2]]
    assert [record.getMessage() for record in caplog.records] == [f"{closed} cannot be read now: Permission denied"]


def test_files_that_come_and_go_while_they_are_read_do_not_stop_the_source(tmp_path: Path, live: Path) -> None:
    """Rotation removes files between our finding them and our opening them."""
    write(live, 0)
    stopping = Event()
    thread = Thread(target=source(tmp_path, "in", poll="1ms").run, args=(stopping,))
    thread.start()
    try:
        for number in range(1, 200):
            write(live, number)
            shutil.copyfile(live, live.with_name("app.log.1"))
            live.with_name("app.log.1").unlink()
        eventually(lambda: numbers(log_records(tmp_path / "log"))[-1:] == [199], "the last line")
    finally:
        stopping.set()
        thread.join(20)
    assert numbers(log_records(tmp_path / "log")) == list(range(200))
