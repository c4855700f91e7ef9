"""A strict stand-in for BigQuery: Google's client as far as it is used, over an in-memory DuckDB.

Statements are read by sqlglot as BigQuery's and refused if it does not understand them whole. It also refuses what
BigQuery refuses: a job id used twice, tables outside of the dataset, changes of tables inside a transaction, columns
whose types do not match, text where there is a type, a MERGE that meets a row twice. It is not BigQuery: what that
makes of a statement beyond this is not known from here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import IO, Any

import duckdb
import sqlglot
from google.api_core.exceptions import BadRequest, Conflict, GoogleAPIError, NotFound
from google.cloud.bigquery import LoadJobConfig, QueryJobConfig, SchemaField
from pyarrow import parquet
from sqlglot import exp

TYPES = {
    "BIGINT": "INTEGER",
    "DOUBLE": "FLOAT",
    "BOOLEAN": "BOOLEAN",
    "VARCHAR": "STRING",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
    "TIMESTAMP": "DATETIME",
    "DATE": "DATE",
    "TIME": "TIME",
    "JSON": "JSON",
    "BIGINT[]": "INTEGER",
}
"""What the API calls a type, which is not what statements call it."""
ARROW = {
    "int64": "INT64",
    "double": "FLOAT64",
    "bool": "BOOL",
    "string": "STRING",
    "timestamp[us, tz=UTC]": "TIMESTAMP",
}
IN_TRANSACTIONS = (exp.Select, exp.Insert, exp.Merge, exp.Update, exp.Delete)
WIDENED = {("BIGINT", "DOUBLE")}


class SimulatedJob:
    """Runs to its end whether anybody waits for it or not."""

    def __init__(self, work: Callable[[], list[tuple[Any, ...]]]) -> None:
        self.error: GoogleAPIError | None = None
        self.rows: list[tuple[Any, ...]] = []
        try:
            self.rows = work()
        except GoogleAPIError as error:
            self.error = error

    @property
    def error_result(self) -> Mapping[str, object] | None:
        return {"message": str(self.error)} if self.error is not None else None

    def result(self, *, timeout: float | None = None) -> Iterable[Sequence[object]]:
        assert timeout is None or timeout > 0
        if self.error is not None:
            raise self.error
        return self.rows


@dataclass
class SimulatedBigquery:
    """One project with one dataset. Holds what was done, for tests to look at."""

    project: str = "my-project"
    dataset: str = "shop"
    jobs: dict[str, SimulatedJob] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    broken: Exception | None = None
    """What the next query ends with."""
    broken_script: Exception | None = None
    """What the next script that commits ends with."""

    def __post_init__(self) -> None:
        self.database = duckdb.connect()
        self.database.execute("SET TimeZone = 'UTC'")
        self.database.execute(f'CREATE SCHEMA "{self.dataset}"')
        self._turn = threading.RLock()

    # Google's client

    def get_table(self, table: str) -> Any:
        name = self._known(table)
        found = self.database.execute(
            "SELECT column_name, data_type, numeric_precision, numeric_scale FROM duckdb_columns()"
            " WHERE schema_name = ? AND table_name = ? ORDER BY column_index",
            [self.dataset, name],
        ).fetchall()
        if not found:
            raise NotFound(f"Not found: Table {table}")
        return SimpleNamespace(schema=[_field(*row) for row in found], table_constraints=None)

    def query(self, query: str, *, job_config: QueryJobConfig, job_id: str | None = None) -> SimulatedJob:
        if job_id is not None and job_id in self.jobs:
            raise Conflict(f"Already Exists: Job {job_id}")
        values = {found.name: found.value for found in job_config.query_parameters}
        job = SimulatedJob(lambda: self._script(query, values))
        if job_id is not None:
            self.jobs[job_id] = job
        return job

    def get_job(self, job_id: str) -> SimulatedJob:
        if job_id not in self.jobs:
            raise NotFound(f"Not found: Job {job_id}")
        return self.jobs[job_id]

    def load_table_from_file(
        self, file_obj: IO[bytes], destination: str, *, rewind: bool, job_config: LoadJobConfig
    ) -> SimulatedJob:
        assert rewind, "the file was just written"
        assert (job_config.source_format, job_config.create_disposition) == ("PARQUET", "CREATE_NEVER")
        file_obj.seek(0)
        rows = parquet.read_table(file_obj)
        return SimulatedJob(lambda: self._load(rows, self._known(destination), job_config.schema))

    def delete_table(self, table: str, *, not_found_ok: bool) -> None:
        with self._turn:
            self.database.execute(
                f'DROP TABLE {"IF EXISTS" if not_found_ok else ""} "{self.dataset}"."{self._known(table)}"'
            )

    def close(self) -> None: ...

    # What it does

    def _load(self, rows: Any, table: str, schema: Sequence[SchemaField]) -> list[tuple[Any, ...]]:
        there = {found.name: found for found in self.get_table(f"{self.project}.{self.dataset}.{table}").schema}
        for column, wanted in zip(rows.schema, schema, strict=True):
            named = (column.name, ARROW.get(str(column.type)))
            assert named == (wanted.name, wanted.field_type), "the file is not of the schema it comes with"
            if TYPES_OF[wanted.field_type] != there[column.name].field_type:
                raise BadRequest(f"Provided Schema does not match Table: field {column.name} has changed type")
        with self._turn:
            names = ", ".join(f'"{name}"' for name in rows.schema.names)
            self.database.execute(f'INSERT INTO "{self.dataset}"."{table}" ({names}) SELECT {names} FROM rows')
        return []

    def _script(self, text: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with self._turn:
            broken, self.broken = self.broken, None
            if broken is not None:
                raise broken
            if "COMMIT" in text and self.broken_script is not None:
                broken, self.broken_script = self.broken_script, None
                raise broken
            self.statements.append(text)
            inside, rows = False, []
            try:
                for tree in understood(text):
                    if isinstance(tree, (exp.Transaction, exp.Commit, exp.Rollback)):
                        inside = isinstance(tree, exp.Transaction)
                    elif inside and not isinstance(tree, IN_TRANSACTIONS):
                        raise BadRequest(f"Transactions cannot use this statement: {tree.sql('bigquery')}")
                    rows = self._statement(tree, values)
                assert not inside, "a transaction was left open"
            except BaseException:
                if inside:
                    self.database.execute("ROLLBACK")
                raise
            return rows

    def _statement(self, tree: exp.Expression, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if isinstance(tree, exp.Alter):
            self._may_alter(tree)
        if isinstance(tree, exp.Merge):
            self._meets_once(tree)
        try:
            cursor = self.database.execute(self._translated(tree, values))
            return cursor.fetchall() if isinstance(tree, exp.Select) else []
        except duckdb.CatalogException as error:
            raise NotFound(f"Not found: {error}") from error
        except duckdb.Error as error:
            raise BadRequest(str(error)) from error

    def _translated(self, tree: exp.Expression, values: Mapping[str, Any]) -> str:
        tree = tree.copy()
        for table in tree.find_all(exp.Table):
            if table.name and table.db:
                if (table.catalog, table.db) != (self.project, self.dataset):
                    raise NotFound(f"Not found: Dataset {table.catalog}:{table.db}")
                table.set("catalog", None)
        for parameter in list(tree.find_all(exp.Parameter)):
            value = values[parameter.name]
            literal = exp.Literal.number(value) if isinstance(value, int) else exp.Literal.string(value)
            parameter.replace(literal)
        if isinstance(tree, exp.Create):
            tree.set("properties", None)
        if isinstance(tree, exp.Alter) and len(tree.args["actions"]) > 1:
            return ";".join(
                exp.Alter(this=tree.this.copy(), kind="TABLE", actions=[action.copy()]).sql("duckdb")
                for action in tree.args["actions"]
            )
        return tree.sql("duckdb")

    def _may_alter(self, tree: exp.Alter) -> None:
        for action in tree.args["actions"]:
            if isinstance(action, exp.AlterColumn):
                was = self.database.execute(
                    "SELECT data_type FROM duckdb_columns() WHERE table_name = ? AND column_name = ?",
                    [tree.this.name, action.this.name],
                ).fetchone()
                change = (was[0] if was else None, action.args["dtype"].sql("duckdb"))
                if change not in WIDENED:
                    raise BadRequest(f"ALTER TABLE ALTER COLUMN SET DATA TYPE requires that {change} can be coerced")

    def _meets_once(self, tree: exp.Merge) -> None:
        source = self._translated(exp.select("COUNT(*)").from_(tree.args["using"].copy()), {})
        keys = [side.sql("duckdb") for side in tree.args["on"].find_all(exp.Column) if side.table == "s"]
        distinct = source.replace("COUNT(*)", f"COUNT(DISTINCT ({', '.join(keys)}))")
        if self.database.execute(source).fetchone() != self.database.execute(distinct).fetchone():
            raise BadRequest("UPDATE/MERGE must match at most one source row for each target row")

    def _known(self, reference: str) -> str:
        project, dataset, name = reference.split(".")
        if (project, dataset) != (self.project, self.dataset):
            raise NotFound(f"Not found: Dataset {project}:{dataset}")
        assert len(name) <= 1_024
        return name


TYPES_OF = {"INT64": "INTEGER", "FLOAT64": "FLOAT", "BOOL": "BOOLEAN", "STRING": "STRING", "TIMESTAMP": "TIMESTAMP"}


def understood(text: str) -> list[exp.Expression]:
    """The statements of a script, each read whole."""
    try:
        trees = sqlglot.parse(text, read="bigquery")
    except sqlglot.ParseError as error:
        raise BadRequest(f"Syntax error: {error}") from error
    found = [tree for tree in trees if tree is not None]
    for tree in found:
        if isinstance(tree, exp.Command):
            raise BadRequest(f"Syntax error: {text}")
    return found


def _field(name: str, kind: str, precision: int | None, scale: int | None) -> SchemaField:
    if kind.startswith("DECIMAL"):
        big = (scale or 0) > 9
        return SchemaField(name, "BIGNUMERIC" if big else "NUMERIC", precision=precision, scale=scale)
    return SchemaField(name, TYPES[kind], mode="REPEATED" if kind.endswith("[]") else "NULLABLE")
