"""BigQuery as the loader uses it: rows go by a Parquet file into a table of their own, then one script takes them over.

The script is one transaction with the mark in it. Jobs go on when their client dies, so the script's job has an id that
every attempt at the same load would give it: BigQuery itself then refuses to run it beside one that is under way, and
what that one did is waited for.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import IO

import pyarrow as pa
from google.api_core.exceptions import Conflict, NotFound
from google.cloud.bigquery import LoadJobConfig, QueryJobConfig, ScalarQueryParameter, SchemaField
from pyarrow import parquet

from penstock import faults
from penstock.destinations.bigquery import statements
from penstock.destinations.bigquery.client import ERRORS, Client, Job, Query, explained
from penstock.destinations.bigquery.dialect import BigqueryDialect
from penstock.destinations.bigquery.statements import LOADED_ALREADY, STAGED_PREFIX, Statement
from penstock.destinations.contract import Batch, TableBook
from penstock.destinations.sql.schema.table_changes import Key, Table, TypedColumn
from penstock.destinations.sql.session import MARKS, Load, Mark, Session, listed_mark
from penstock.errors import TransientError


class BigquerySession(Session):
    def __init__(self, client: Client, dialect: BigqueryDialect, job_timeout: float | None = None) -> None:
        self._client = client
        self.dialect: BigqueryDialect = dialect
        self._timeout = job_timeout
        self._patching = ""
        self._has_origins = False

    # Tables

    def table(self, name: str) -> Table | None:
        with _explained(refuses=False):
            try:
                found = self._client.get_table(self._reference(name))
            except NotFound:
                return None
        columns = {field.name.lower(): TypedColumn(field.name, _type(field)) for field in found.schema}
        constraints = found.table_constraints
        key = constraints.primary_key if constraints is not None else None
        return Table(name, columns, Key("", tuple(column.lower() for column in key.columns)) if key else None)

    def select(self, query: str) -> Sequence[Sequence[object]]:
        with _explained(refuses=False):
            return [tuple(row) for row in self._query(Statement(query, {})).result(timeout=self._timeout)]

    def change(self, steps: Sequence[str]) -> None:
        with _explained(refuses=False):
            for statement in statements.together(self.dialect, self._patching, steps):
                self._wait(self._query(Statement(statement, {})))

    @contextmanager
    def patching(self, table: str, book: TableBook) -> Iterator[None]:
        """By the ledger: BigQuery has no locks."""
        with book.lock(f"bigquery {self.dialect.relation(table)}"):
            self._patching = table
            yield

    # Loads

    def mark(self, batch: Batch, table: str) -> Mark | None:
        with _explained(refuses=False):
            try:
                self._keep_origins()
                query = self._query(statements.finding_mark(self.dialect, batch, table))
                rows = list(query.result(timeout=self._timeout))
            except NotFound:
                return None
        found = ((replace(batch, origin=str(row[2])), int(str(row[0])), str(row[1])) for row in rows)
        return next((Mark(marked, table, loaded, failures) for marked, loaded, failures in found), None)

    def newest_marks(self) -> list[Mark]:
        return self._list_marks(partial(statements.newest_marks, self.dialect))

    def marks(self, scope: str, route: str) -> list[Mark]:
        return self._list_marks(lambda origin: statements.marks_of(self.dialect, origin, scope, route))

    def _list_marks(self, query: Callable[[str], Statement]) -> list[Mark]:
        """``query`` is given what to ask for as the origin, which marks of an older release do not have."""
        found = self.table(MARKS)
        if found is None:
            return []
        with _explained(refuses=False):
            asked = self._query(query("COALESCE(m.`origin`, '')" if "origin" in found.columns else "''"))
            return [listed_mark(tuple(row)) for row in asked.result(timeout=self._timeout)]

    def _keep_origins(self) -> None:
        """Raises ``NotFound`` if there are no marks yet."""
        if not self._has_origins:
            schema = self._client.get_table(self._reference(MARKS)).schema
            if not any(field.name.lower() == "origin" for field in schema):
                self._wait(self._query(statements.adding_origin(self.dialect)))
            self._has_origins = True

    def load(self, load: Load, mark: Callable[[], Mark] | None) -> None:
        with _explained(), tempfile.TemporaryFile(prefix="penstock-", suffix=".parquet") as file:
            schema = statements.file_schema(self.dialect, load)
            write_rows(load, schema, file)
            if mark is not None:
                self.make_marks()
            with self._staged(file, schema) as staged:
                note = mark() if mark is not None else None
                script = statements.taking_over(self.dialect, load, staged, schema, note)
                if note is None:
                    self._wait(self._query(script))
                    return
                faults.reach("destination.writing")
                self._once(script, note)
            faults.reach("destination.committed")
            old = statements.dropping_marks(self.dialect, note.batch)
            if old is not None:
                with suppress(*ERRORS):
                    self._wait(self._query(old))

    def make_marks(self) -> None:
        with _explained(refuses=False):
            self._wait(self._query(Statement(statements.marks_table(self.dialect), {})))

    @contextmanager
    def _staged(self, file: IO[bytes], schema: pa.Schema) -> Iterator[str]:
        """A table that has the file's rows, for as long as it is needed."""
        name = STAGED_PREFIX + uuid.uuid4().hex
        self._wait(self._query(Statement(statements.staged_table(self.dialect, name, schema), {})))
        try:
            config = LoadJobConfig(
                source_format="PARQUET",
                write_disposition="WRITE_APPEND",
                create_disposition="CREATE_NEVER",
                schema=[SchemaField(field.name, statements.staged_type(field.type)) for field in schema],
            )
            self._wait(self._client.load_table_from_file(file, self._reference(name), rewind=True, job_config=config))
            yield name
        finally:
            with suppress(*ERRORS):
                self._client.delete_table(self._reference(name), not_found_ok=True)

    def _once(self, script: Statement, mark: Mark) -> None:
        """Run the script under the first id that no earlier attempt has used up by failing."""
        for attempt in count():
            identity = statements.job_id(mark, attempt)
            try:
                job = self._query(script, identity)
            except Conflict:
                if self._failed(identity):
                    continue
                raise _loaded_already(mark) from None
            try:
                self._wait(job)
            except ERRORS as error:
                if LOADED_ALREADY in str(error):
                    raise _loaded_already(mark) from error
                raise
            return

    def _failed(self, identity: str) -> bool:
        """Whether the job of an earlier attempt came to nothing. Waits for its end."""
        job = self._client.get_job(identity)
        try:
            self._wait(job)
        except ERRORS:
            if job.error_result is None:
                raise
            return True
        return False

    # Jobs

    def _query(self, statement: Statement, job_id: str | None = None) -> Query:
        parameters = [
            ScalarQueryParameter(name, "INT64" if isinstance(value, int) else "STRING", value)
            for name, value in statement.values.items()
        ]
        config = QueryJobConfig(query_parameters=parameters)
        return self._client.query(statement.text, job_config=config, job_id=job_id)

    def _wait(self, job: Job) -> None:
        job.result(timeout=self._timeout)

    def _reference(self, table: str) -> str:
        return f"{self.dialect.project}.{self.dialect.dataset}.{table}"


def write_rows(load: Load, schema: pa.Schema, file: IO[bytes]) -> None:
    """The rows of a load as one Parquet file."""
    with parquet.ParquetWriter(file, schema) as writer:
        for reader in load.rows.readers():
            for batch in reader:
                writer.write_batch(statements.file_rows(batch, schema))


def _type(field: SchemaField) -> str:
    return statements.column_type(field.field_type, field.mode, field.precision, field.scale, field.max_length)


def _loaded_already(mark: Mark) -> TransientError:
    what = f"batch {mark.batch.number} of '{mark.table}' was loaded by an earlier attempt."
    return TransientError("PEN-DST-053", what, "It is looked up again.")


@contextmanager
def _explained(refuses: bool = True) -> Iterator[None]:
    try:
        yield
    except faults.InjectedFault:
        raise
    except ERRORS as error:
        raise explained(error, refuses) from error
