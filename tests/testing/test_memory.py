"""The memory check of the destination suite fails for a destination that hoards, whatever its process was before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.destinations.contract import NULL_TABLE_BOOK, AnyDestination, Batch, Part, Receipt, Stager, TableBook
from penstock.destinations.file.config import FileConfig
from penstock.destinations.file.destination import FileDestination
from penstock.outcome import Outcome
from penstock.testing.destination import LARGE, DestinationContract, Staging
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
    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return HoardingStager(super().stager(directory, casts))


class WritesFromMemory(FileDestination):
    """Has it all for a moment only."""

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        everything = [Path(part.path).read_text().splitlines() for part in parts]
        receipt = super().write(batch, parts, book)
        assert sum(map(len, everything)) == receipt.rows
        return receipt


def check(destination: AnyDestination, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = Staging(destination, folder / "stage")
    DestinationContract().test_a_large_batch_does_not_take_memory_with_it(destination, staging, monkeypatch)


@pytest.mark.parametrize("larger_before", [False, True])
@pytest.mark.parametrize(("hoarding", "which"), [(StagesInMemory, "to stage"), (WritesFromMemory, "to write")])
def test_a_destination_that_hoards_fails_its_suite(
    hoarding: type[FileDestination], which: str, larger_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if larger_before:
        pieces = [bytes(1 << 16) for _ in range(3 * LARGE >> 16)]
        del pieces
    with pytest.raises(AssertionError, match=f"{which} 64 MiB took"):
        check(hoarding(FileConfig(path=tmp_path / "files")), tmp_path, monkeypatch)


def test_one_that_does_not_hoard_passes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(FileDestination(FileConfig(path=tmp_path / "files")), tmp_path, monkeypatch)


def test_memory_that_is_taken_for_a_moment_counts_and_what_was_there_before_does_not() -> None:
    before = bytes(range(256)) * (LARGE >> 8)
    with measure_growth() as growth:
        moment = bytes(range(256)) * (LARGE >> 9)
        assert sha256(moment).digest()
        del moment
    assert 0.4 * LARGE < growth.bytes < 0.9 * LARGE
    assert len(before) == LARGE
