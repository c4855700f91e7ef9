"""What a SQL destination owes a route that stops at a refused record: all rows of a batch, or none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pytest

from penstock.destinations.contract import NULL_TABLE_BOOK, AnyDestination, Batch, Part, Receipt
from penstock.errors import RefusedError
from penstock.testing.crash import crash_at
from penstock.testing.destination import Staging, batch, delivered_rows, events

BAD = -1


class AllOrNothingContract(ABC):
    """For destinations that have ``write_all_or_nothing`` of their own and a target with constraints.

    Gives: ``make``, ``ids``.
    Asserted: rows that are all fine are all written, over all tables; one refused row keeps all others out of every
    table and is a ``RefusedError``; a batch that was written is known again. Where a crash came between two tables, the
    one that has its rows keeps them, and rows that the other refuses then are named in the receipt.
    """

    @abstractmethod
    def make(self, **options: Any) -> AnyDestination:
        """The destination, its table chosen by the field ``kind``, at one target per test. The target has the tables
        ``small`` and ``large`` (made at the first call), each with a constraint by which ``amount`` is above 0."""

    @abstractmethod
    def ids(self, table: str) -> list[int]:
        """The field ``id`` of every row of a table, sorted."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return tmp_path / "stage"

    def write(self, place: Path, which: Batch, rows: list[tuple[int, str, int]], **options: Any) -> Receipt:
        destination = self.make(**options)
        return destination.write_all_or_nothing(which, self.stage(destination, place, rows), NULL_TABLE_BOOK)

    def stage(self, destination: AnyDestination, place: Path, rows: list[tuple[int, str, int]]) -> list[Part]:
        data = events(*({"id": number, "kind": kind, "amount": amount} for number, kind, amount in rows))
        return Staging(destination, place).stage(data)

    @pytest.mark.parametrize(
        ("rows", "small", "large"),
        [
            ([(1, "small", 1), (2, "small", 2)], [1, 2], []),
            ([(1, "small", 1), (2, "large", 2), (3, "small", 3)], [1, 3], [2]),
        ],
    )
    def test_rows_that_are_all_fine_are_all_written(
        self, place: Path, rows: list[tuple[int, str, int]], small: list[int], large: list[int]
    ) -> None:
        assert delivered_rows(self.write(place, batch(1), rows)) == len(rows)
        assert (self.ids("small"), self.ids("large")) == (small, large)

    @pytest.mark.parametrize(
        "rows",
        [
            [(1, "small", 1), (2, "small", BAD), (3, "small", 3)],
            [(1, "small", 1), (2, "large", BAD), (3, "small", 3)],
            [(1, "small", BAD), (2, "large", 2), (3, "large", 3)],
        ],
        ids=["one table", "the second table", "the first table"],
    )
    def test_one_refused_row_keeps_all_others_out_of_every_table(
        self, place: Path, rows: list[tuple[int, str, int]]
    ) -> None:
        with pytest.raises(RefusedError, match=r"(?i)constraint"):
            self.write(place, batch(1), rows)
        assert (self.ids("small"), self.ids("large")) == ([], [])
        fine = [row for row in rows if row[2] != BAD]
        assert delivered_rows(self.write(place, batch(1), fine)) == 2

    def test_a_row_without_its_key_is_refused_like_any_other(self, place: Path) -> None:
        rows = [{"id": 1, "kind": "fresh", "code": "a"}, {"id": 2, "kind": "fresh"}]
        destination = self.make(primary_key=["code"])
        parts = Staging(destination, place).stage(events(*rows))
        with pytest.raises(RefusedError):
            destination.write_all_or_nothing(batch(1), parts, NULL_TABLE_BOOK)

    def test_a_batch_that_was_written_is_known_again(self, place: Path) -> None:
        rows = [(1, "small", 1), (2, "large", 2)]
        self.write(place, batch(1), rows)
        again = self.write(place, batch(1), rows)
        assert delivered_rows(again) == 2
        assert (self.ids("small"), self.ids("large")) == ([1], [2])

    def test_a_table_that_was_written_before_a_crash_is_not_written_again_and_refused_rows_are_named(
        self, place: Path
    ) -> None:
        with crash_at("destination.committed"):
            self.write(place, batch(1), [(1, "small", 1), (2, "large", 2)])
        written = self.ids("small") + self.ids("large")
        assert len(written) == 1
        # What the other table would take then, it takes no more.
        (table,) = {"small", "large"} - ({"small"} if self.ids("small") else {"large"})
        rows = [(1, "small", 1), (2, "large", 2)]
        spoilt = [(number, kind, BAD if kind == table else amount) for number, kind, amount in rows]
        receipt = self.write(place, batch(1), spoilt)
        assert sum(failures.num_rows for failures in receipt.failures) == 1
        assert self.ids("small") + self.ids("large") == written
