"""BigQuery as the loader uses it: a Parquet file brings rows into a staging table, then one script loads them.

The script is one transaction with the mark in it. Jobs go on when their client dies, so every attempt at the same load
gives the script's job the same id: BigQuery itself then refuses to run it beside one that is under way, and we wait for
the result of that one.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import IO

import pyarrow as pa
from google.api_core.exceptions import Conflict, NotFound
from google.cloud.bigquery import LoadJobConfig, QueryJobConfig, ScalarQueryParameter, SchemaField
from pyarrow import parquet

from penstock import faults
from penstock.destinations.bigquery import statements
from penstock.destinations.bigquery.client import ERRORS, Client, Job, Query, as_penstock_error
from penstock.destinations.bigquery.dialect import BigqueryDialect
from penstock.destinations.bigquery.statements import LOADED_ALREADY, STAGED_PREFIX, Statement
from penstock.destinations.contract import Batch, TableBook
from penstock.destinations.sql.load.table_load import Load
from penstock.destinations.sql.marked_session import MarkedSession
from penstock.destinations.sql.marks import MARKS, Mark
from penstock.destinations.sql.schema.schema_operations import Key, Table, TypedColumn
from penstock.errors import TransientError


class BigquerySession(MarkedSession):
    def __init__(self, client: Client, dialect: BigqueryDialect, job_timeout: float | None = None) -> None:
        self._client = client
        self.dialect: BigqueryDialect = dialect
        self._timeout = job_timeout
        self._patching = ""
        self._has_origins = False

    # Tables

    def table(self, name: str) -> Table | None:
        with _translate_errors(refuses=False):
            try:
                found = self._client.get_table(self._reference(name))
            except NotFound:
                return None
        columns = {field.name.lower(): TypedColumn(field.name, _type(field)) for field in found.schema}
        constraints = found.table_constraints
        key = constraints.primary_key if constraints is not None else None
        return Table(name, columns, Key("", tuple(column.lower() for column in key.columns)) if key else None)

    def select(self, query: str, **values: str) -> Sequence[Sequence[object]]:
        with _translate_errors(refuses=False):
            return [tuple(row) for row in self._query(Statement(query, values)).result(timeout=self._timeout)]

    def run_ddl(self, steps: Sequence[str]) -> None:
        with _translate_errors(refuses=False):
            for statement in statements.combine_added_columns(self.dialect, self._patching, steps):
                self._wait(self._query(Statement(statement, {})))

    @contextmanager
    def lock_schema(self, table: str, book: TableBook) -> Iterator[None]:
        """By the ledger: BigQuery has no locks."""
        with book.lock(f"bigquery {self.dialect.relation(table)}"):
            self._patching = table
            yield

    # Loads

    def find_mark(self, batch: Batch, table: str) -> Mark | None:
        with _translate_errors(refuses=False):
            try:
                self._ensure_origin_column()
            except NotFound:
                return None
        return self._stored_mark(batch, table)

    def _ensure_origin_column(self) -> None:
        """Raises ``NotFound`` if there are no marks yet."""
        if not self._has_origins:
            schema = self._client.get_table(self._reference(MARKS)).schema
            if not any(field.name.lower() == "origin" for field in schema):
                self._wait(self._query(statements.add_origin_statement(self.dialect)))
            self._has_origins = True

    def _load(self, load: Load) -> None:
        with _translate_errors(), tempfile.TemporaryFile(prefix="penstock-", suffix=".parquet") as file:
            schema = statements.file_schema(self.dialect, load)
            write_rows(load, schema, file)
            if load.batch is not None:
                self.ensure_marks_table()
            with self._stage_file(file, schema) as staged:
                mark = load.mark()
                script = statements.load_script(self.dialect, load, staged, schema, mark)
                if mark is None:
                    self._wait(self._query(script))
                    return
                faults.reach("destination.writing")
                self._run_once(script, mark)
            old = statements.delete_marks_statement(self.dialect, mark.batch)
            if old is not None:
                with suppress(*ERRORS):
                    self._wait(self._query(old))

    def ensure_marks_table(self) -> None:
        with _translate_errors(refuses=False):
            self._wait(self._query(Statement(statements.create_marks_statement(self.dialect), {})))

    @contextmanager
    def _stage_file(self, file: IO[bytes], schema: pa.Schema) -> Iterator[str]:
        """Load the file into a staging table, which exists as long as the context."""
        name = STAGED_PREFIX + uuid.uuid4().hex
        self._wait(self._query(Statement(statements.create_staged_statement(self.dialect, name, schema), {})))
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

    def _run_once(self, script: Statement, mark: Mark) -> None:
        """Run the script under the first job id whose attempt has not failed."""
        for attempt in count():
            identity = statements.job_id(mark, attempt)
            try:
                job = self._query(script, identity)
            except Conflict:
                if self._has_failed(identity):
                    continue
                raise _loaded_already(mark) from None
            try:
                self._wait(job)
            except ERRORS as error:
                if LOADED_ALREADY in str(error):
                    raise _loaded_already(mark) from error
                raise
            return

    def _has_failed(self, identity: str) -> bool:
        """Wait for the job of an earlier attempt; returns whether it failed."""
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
    """Write the rows of a load as one Parquet file."""
    with parquet.ParquetWriter(file, schema) as writer:
        for reader in load.rows.readers():
            for batch in reader:
                writer.write_batch(statements.file_rows(batch, schema))


def _type(field: SchemaField) -> str:
    return statements.column_type(field.field_type, field.mode, field.precision, field.scale, field.max_length)


def _loaded_already(mark: Mark) -> TransientError:
    what = f"batch {mark.batch.number} of '{mark.table}' was loaded by an earlier attempt."
    return TransientError("PEN-DST-053", what, "Nothing to do: it is looked up again.")


@contextmanager
def _translate_errors(refuses: bool = True) -> Iterator[None]:
    try:
        yield
    except faults.InjectedFault:
        raise
    except ERRORS as error:
        raise as_penstock_error(error, refuses) from error
