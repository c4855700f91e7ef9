"""One connection to an engine that keeps state: what engines do differently."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import pyarrow as pa

from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.sql.schema.schema_operations import Table
from penstock.destinations.state.store.bookkeeping import Bookkeeping
from penstock.destinations.state.store.fit_state import StateTable, TablePlan

Value = str | int | float | list[str] | list[int] | list[str | None]
Plan = Callable[[StateTable | None], TablePlan]
"""What must be done to a table, as it is."""


class Statement(NamedTuple):
    text: str
    values: Mapping[str, Value] = {}
    """They are ``dialect.parameter``s of these names."""


class Answer(NamedTuple):
    rows: Sequence[Sequence[object]]
    affected: int
    """How many rows the statement changed, or gave."""


class Staged(NamedTuple):
    """Rows in the database that are in no table yet."""

    relation: str
    """What to select from."""
    values: Mapping[str, Value] = {}
    """The parameters in it."""


class StateConnection(ABC):
    """Used by one thread at a time. Raises the errors of ``contract``; after one, the transaction is rolled back."""

    dialect: Dialect
    books: Bookkeeping

    @abstractmethod
    def transaction(self, about_rows: bool = False) -> AbstractContextManager[None]:
        """All or nothing. What the engine refuses ``about_rows`` is the rows' fault."""

    @abstractmethod
    def ask(self, *statements: Statement) -> list[Answer]:
        """Run statements, one after the other; they are sent together where the engine can."""

    def fetch(self, text: str, **values: Value) -> Sequence[Sequence[object]]:
        return self.ask(Statement(text, values))[0].rows

    def run(self, text: str, **values: Value) -> int:
        return self.ask(Statement(text, values))[0].affected

    def limit_statements(self, seconds: float) -> Sequence[Statement]:
        """What makes later statements of this transaction end after so long, where somebody else may keep them."""
        return ()

    @abstractmethod
    def state_table(self, name: str) -> StateTable | None:
        """The table as it is, and stays until the transaction ends."""

    def ask_with_table(self, statements: Sequence[Statement], table: str) -> tuple[list[Answer], StateTable | None]:
        """Run statements, then look at a table."""
        return self.ask(*statements), self.state_table(table)

    @abstractmethod
    def alter(self, name: str, plan: Plan) -> None:
        """Change a table, in a transaction of its own, while nobody else does; the plan is made of what is there
        then."""

    @abstractmethod
    def stage(self, table: Table, rows: pa.Table) -> Staged:
        """Put rows where statements of this transaction can select them. The columns have the types of the table's, by
        the table's names; ``SAID`` is a small integer."""

    def forbid_nested_loops(self, rows: int) -> Sequence[Statement]:
        """What keeps later statements of this transaction from going through so many staged rows once for every row
        of a source. An engine does that if it does not know yet that a source has many."""
        return ()

    @abstractmethod
    def append(self, table: Table, rows: pa.Table, by: Sequence[str]) -> None:
        """Put rows into the table, whose key columns are ``by``."""

    def gains_by_append(self, rows: int) -> bool:
        """Whether it pays to find out that a source has no rows yet, for so many that it brings."""
        return True

    def comparable(self, value: str, sql_type: str) -> str:
        """A value of a type as an expression that is equal for equal values only."""
        return value
