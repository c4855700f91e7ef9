"""The memory check of the destination suite fails for a destination that hoards, whatever its process was before."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.destinations.contract import NULL_TABLE_BOOK, Batch, Part, Receipt, Stager, TableBook
from penstock.destinations.file.config import FileConfig
from penstock.destinations.file.destination import FileDestination
from penstock.outcome import Outcome
from penstock.testing.destination import DestinationContract, Staging
from penstock.testing.forked import make_process
from penstock.testing.large_batch import LARGE
from penstock.testing.memory import measure_growth


class HoardingStager(Stager):
    """Holds all rows back until the last."""

    def __init__(self, inner: Stager) -> None:
        self._inner = inner
        self._held: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        # A copy: the suite's batches share their bytes.
        self._held.append(pa.RecordBatch.from_pylist(batch.to_pylist(), schema=batch.schema))
        return Outcome(batch)

    def finish(self) -> list[Part]:
        for batch in self._held:
            self._inner.add(batch)
        return self._inner.finish()


class StagesInMemory(FileDestination):
    word = "to stage 64 MiB took"

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return HoardingStager(super().stager(directory, casts))


class WritesFromMemory(FileDestination):
    """Has it all for a moment only."""

    word = "to write 64 MiB took"

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        everything = [Path(part.path).read_text().splitlines() for part in parts]
        receipt = super().write(batch, parts, book)
        assert sum(map(len, everything)) == receipt.rows
        return receipt


Hoarding = type[StagesInMemory | WritesFromMemory]


class HereContract(DestinationContract):
    in_this_process = True


def check(suite: type[DestinationContract], kind: type[FileDestination], folder: Path) -> None:
    destination = kind(FileConfig(path=folder / "files"))
    staging = Staging(destination, folder / "stage")
    suite().test_a_large_batch_does_not_take_memory_with_it(destination, staging)


def check_after_more_was_freed(suite: type[DestinationContract], kind: type[FileDestination], folder: Path) -> None:
    pieces = [bytes(1 << 16) for _ in range(3 * LARGE >> 16)]
    del pieces
    check(suite, kind, folder)


def told_by(function: Callable[..., None], *arguments: Any) -> str:
    """What an assertion says that fails in a function, run in a process without the engines that other tests load."""
    answer, told = multiprocessing.get_context("forkserver").Pipe(duplex=False)
    process = make_process(_tell, told, function, arguments)
    process.start()
    told.close()
    said: str = answer.recv()
    process.join()
    return said


def _tell(told: Connection, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    try:
        function(*arguments)
    except AssertionError as error:
        told.send(str(error))
    else:
        told.send("")


@pytest.mark.parametrize("hoarding", [StagesInMemory, WritesFromMemory])
def test_a_destination_that_hoards_fails_its_suite(hoarding: Hoarding, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=hoarding.word):
        check(DestinationContract, hoarding, tmp_path)


@pytest.mark.parametrize("hoarding", [StagesInMemory, WritesFromMemory])
def test_it_also_fails_in_a_process_that_was_larger_before(hoarding: Hoarding, tmp_path: Path) -> None:
    assert hoarding.word in told_by(check_after_more_was_freed, HereContract, hoarding, tmp_path)


def test_one_that_does_not_hoard_passes_it(tmp_path: Path) -> None:
    check(DestinationContract, FileDestination, tmp_path)
    (tmp_path / "here").mkdir()
    assert told_by(check_after_more_was_freed, HereContract, FileDestination, tmp_path / "here") == ""


def take_memory_for_a_moment() -> None:
    before = bytes(range(256)) * (LARGE >> 8)
    with measure_growth() as growth:
        moment = bytes(range(256)) * (LARGE >> 9)
        assert sha256(moment).digest()
        del moment
    assert 0.4 * LARGE < growth.bytes < 0.9 * LARGE
    assert len(before) == LARGE


def test_memory_that_is_taken_for_a_moment_counts_and_what_was_there_before_does_not() -> None:
    assert told_by(take_memory_for_a_moment) == ""
