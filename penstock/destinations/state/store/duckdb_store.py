"""State in a DuckDB file: the embedded store. It has one connection; writers take turns."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa

from penstock import faults
from penstock.destinations.duckdb.dialect import DUCKDB
from penstock.destinations.duckdb.mirror_applier import create_staging_table, insert_rows
from penstock.destinations.duckdb.open_file import open_file
from penstock.destinations.duckdb.session import DuckdbSession, as_penstock_error
from penstock.destinations.sql.schema.schema_operations import Table, WidenColumn
from penstock.destinations.state.store.bookkeeping import Bookkeeping
from penstock.destinations.state.store.contract import StateStore
from penstock.destinations.state.store.diff_statements import SAID, STAGED
from penstock.destinations.state.store.fit_state import StateTable
from penstock.destinations.state.store.sql_store import SqlStateStore
from penstock.destinations.state.store.state_connection import Answer, Plan, Staged, StateConnection, Statement
from penstock.flatten.inner_types import InnerType

_NUMBER, _TEXT = "DECIMAL(38,18)", DUCKDB.types[InnerType.STRING]
# Numbers keep their digits: a double would round them.
DIALECT = replace(DUCKDB, types={**DUCKDB.types, InnerType.FLOAT64: _NUMBER})


@contextmanager
def open_duckdb_store(path: Path) -> Iterator[StateStore]:
    # Changes are spread over the tables: DuckDB writes them into the file once its write-ahead log has 16 MB.
    with open_file(path, checkpoint=False) as file:
        connection = DuckdbStateConnection(file, path)
        with connection.transaction():
            for statement in connection.books.create:
                connection.run(statement)
        yield _DuckdbStateStore(connection)


class _DuckdbStateStore(SqlStateStore):
    def __init__(self, connection: DuckdbStateConnection) -> None:
        super().__init__()
        self._connection = connection
        self._turn = threading.RLock()

    @contextmanager
    def _writer(self) -> Iterator[DuckdbStateConnection]:
        with self._turn:
            yield self._connection

    _own = _writer


class DuckdbStateConnection(StateConnection):
    dialect = DIALECT
    books = Bookkeeping(DIALECT)

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._session = DuckdbSession(connection, path)
        self._seen: set[str] = set()
        """Tables that are there: nobody else can drop one."""

    @contextmanager
    def transaction(self, about_rows: bool = False) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # A transaction that failed as a whole (a full disk, say) is already rolled back.
                with suppress(duckdb.Error):
                    self._connection.execute("ROLLBACK")
                raise
        except (duckdb.InternalError, faults.InjectedFault):
            raise
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            raise as_penstock_error(self._path, error) from error

    def ask(self, *statements: Statement) -> list[Answer]:
        answers = []
        for statement in statements:
            rows = self._connection.execute(statement.text, dict(statement.values) or None).fetchall()
            changed = len(rows) == 1 and len(rows[0]) == 1 and isinstance(rows[0][0], int)
            answers.append(Answer(rows, int(rows[0][0]) if changed else len(rows)))
        return answers

    def state_table(self, name: str) -> StateTable | None:
        # To describe a table that is not there would abort the transaction.
        if name not in self._seen and not self.fetch(_IS_THERE, name=name):
            return None
        self._seen.add(name)
        found = self._session.table(name)
        if found is None:
            return None
        filled = self.fetch(self.books.filled_columns, table_name=name)
        return StateTable(found, frozenset(str(column) for (column,) in filled))

    def alter(self, name: str, plan: Plan) -> None:
        with self.transaction():
            needed = plan(self.state_table(name))
            for operation in needed.operations:
                self.run(self.dialect.render(operation))
                if isinstance(operation, WidenColumn) and (operation.was, operation.column.type) == (_NUMBER, _TEXT):
                    # Without the zeros that only the type added. Not in the same statement: DuckDB writes that one into
                    # its write-ahead log as it is, and cannot call functions when it reads it.
                    text = self.dialect.identifier(operation.column.name)
                    self.run(f"UPDATE {self.dialect.relation(name)} SET {text} = rtrim(rtrim({text}, '0'), '.')")
            for column in needed.newly_filled:
                self.run(self.books.add_filled, table_name=name, column_name=column)

    def stage(self, table: Table, rows: pa.Table) -> Staged:
        listed = ", ".join(
            f"0::SMALLINT AS {self.dialect.identifier(name)}" if name == SAID else self.dialect.identifier(name)
            for name in rows.column_names
        )
        create_staging_table(self._connection, STAGED, listed, self.dialect.relation(table.name))
        self._insert(STAGED, rows)
        return Staged(self.dialect.identifier(STAGED))

    def append(self, table: Table, rows: pa.Table, by: Sequence[str]) -> None:
        self._insert(self.dialect.relation(table.name), rows)

    def _insert(self, relation: str, rows: pa.Table) -> None:
        insert_rows(self._connection, relation, rows.schema, iter(rows.to_batches()))


_IS_THERE = """
    SELECT 1 FROM duckdb_columns()
    WHERE database_name = current_database() AND schema_name = current_schema() AND lower(table_name) = lower($name)
    LIMIT 1
"""
