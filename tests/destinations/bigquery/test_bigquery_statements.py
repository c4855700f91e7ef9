"""Everything that BigQuery is sent, read by sqlglot as BigQuery."""

from collections.abc import Iterator
from concurrent.futures import TimeoutError as JobTimeout
from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa
import pytest
import sqlglot
from google.api_core import exceptions
from google.auth.exceptions import DefaultCredentialsError
from pydantic import ValidationError
from sqlglot import exp

from penstock.destinations.bigquery import statements
from penstock.destinations.bigquery.client import as_penstock_error
from penstock.destinations.bigquery.config import BigqueryConfig
from penstock.destinations.bigquery.dialect import bigquery_dialect
from penstock.destinations.contract import Batch
from penstock.destinations.sql.load.merge_rows import Merge
from penstock.destinations.sql.load.table_load import Load, LoadResult
from penstock.destinations.sql.marks import Mark
from penstock.destinations.sql.schema.schema_operations import (
    AddColumn,
    CreateTable,
    Operation,
    Table,
    TypedColumn,
    WidenColumn,
)
from penstock.errors import PenstockError, RefusedError, TransientError
from penstock.flatten.column import Column
from penstock.flatten.inner_types import InnerType
from penstock.outcome import NO_FAILURES

DIALECT = bigquery_dialect("my-project", "shop")
T = "`my-project`.`shop`.`t`"
MARKS = "`my-project`.`shop`.`_penstock_loads`"
A, B = TypedColumn("a", "INT64"), TypedColumn("b", "STRING")


def parsed(text: str) -> list[exp.Expression]:
    trees = sqlglot.parse(text, read="bigquery")
    assert not any(isinstance(tree, exp.Command) for tree in trees), text
    return [tree for tree in trees if tree is not None]


@dataclass(frozen=True)
class Columns:
    names: list[str]

    def columns(self) -> list[str]:
        return self.names

    def readers(self) -> Iterator[pa.RecordBatchReader]:
        return iter(())

    def result(self) -> LoadResult:
        return LoadResult(0, NO_FAILURES, 0)


def load(types: dict[str, str], key: tuple[str, ...] = (), version: str | None = None) -> Load:
    table = Table("t", {name.lower(): TypedColumn(name, kind) for name, kind in types.items()})
    return Load(table, Columns(list(table.columns)), Merge(key, version) if key else None)


MARK = Mark(Batch("ledger", "route", 7, {}), "t", 3, "none")


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (CreateTable("t", (A, B)), f"CREATE TABLE IF NOT EXISTS {T} (`a` INT64, `b` STRING)"),
        (AddColumn("t", A), f"ALTER TABLE {T} ADD COLUMN IF NOT EXISTS `a` INT64"),
        (AddColumn("t", DIALECT.unmapped_column), f"ALTER TABLE {T} ADD COLUMN IF NOT EXISTS `_unmapped` JSON"),
        (
            WidenColumn("t", TypedColumn("a", "FLOAT64"), "INT64"),
            f"ALTER TABLE {T} ALTER COLUMN `a` SET DATA TYPE FLOAT64",
        ),
    ],
)
def test_an_operation_is_one_statement(operation: Operation, text: str) -> None:
    assert DIALECT.render(operation) == text
    assert len(parsed(text)) == 1


def test_columns_are_added_at_once() -> None:
    steps = [DIALECT.render(step) for step in (AddColumn("t", A), AddColumn("t", B), AddColumn("u", A))]
    first, second = statements.combine_added_columns(DIALECT, "t", steps)
    assert first == f"ALTER TABLE {T} ADD COLUMN IF NOT EXISTS `a` INT64, ADD COLUMN IF NOT EXISTS `b` STRING"
    assert second == steps[2]
    assert len(parsed(first)[0].args["actions"]) == 2


@pytest.mark.parametrize(
    ("there", "values", "wider"),
    [
        ("INT64", InnerType.FLOAT64, "FLOAT64"),
        ("INT64", InnerType.STRING, None),
        ("BOOL", InnerType.INT64, None),
        ("ARRAY<INT64>", InnerType.STRING, None),
    ],
)
def test_only_integers_can_be_widened(there: str, values: InnerType, wider: str | None) -> None:
    assert DIALECT.wider_type(there, values) == wider


@pytest.mark.parametrize("key", [(), ("a",)], ids=["append", "merge"])
@pytest.mark.parametrize("mark", [MARK, None], ids=["kept", "tried"])
def test_a_load_is_one_transaction_with_its_mark(key: tuple[str, ...], mark: Mark | None) -> None:
    asked = load({"a": "INT64", "b": "STRING", "_unmapped": "JSON"}, key)
    schema = statements.file_schema(DIALECT, asked)
    script = statements.load_script(DIALECT, asked, "st", schema, mark)
    kinds = [type(tree) for tree in parsed(script.text)]
    move = exp.Merge if key else exp.Insert
    if mark is None:
        assert kinds == [exp.Transaction, move, exp.Rollback]
        assert script.values == {}
    else:
        assert kinds == [exp.Transaction, exp.Select, move, exp.Insert, exp.Commit]
        asked_for = {parameter.name for tree in parsed(script.text) for parameter in tree.find_all(exp.Parameter)}
        assert asked_for == set(script.values)


def test_an_append_selects_the_staged_rows() -> None:
    asked = load({"A": "INT64", "day": "DATE", "n": "NUMERIC(12, 2)", "when": "DATETIME", "_unmapped": "JSON"})
    text = statements.load_script(DIALECT, asked, "st", statements.file_schema(DIALECT, asked), None).text
    assert text.split(";\n")[1] == (
        f"INSERT INTO {T} (`A`, `day`, `n`, `when`, `_unmapped`) SELECT `A`, CAST(`day` AS DATE) AS `day`,"
        " CAST(`n` AS NUMERIC) AS `n`, CAST(`when` AS DATETIME) AS `when`, PARSE_JSON(`_unmapped`) AS `_unmapped`"
        " FROM `my-project`.`shop`.`st`"
    )


def test_a_merge_leaves_what_a_row_does_not_carry() -> None:
    asked = load({"a": "INT64", "b": "STRING", "v": "INT64"}, ("a",), "v")
    text = statements.load_script(DIALECT, asked, "st", statements.file_schema(DIALECT, asked), None).text
    assert text.split(";\n")[1] == (
        f"MERGE INTO {T} AS t USING (SELECT `a`, `b`, `v` FROM `my-project`.`shop`.`st`) AS s ON t.`a` = s.`a`"
        " WHEN MATCHED AND (t.`v` IS NULL OR s.`v` >= t.`v`)"
        " THEN UPDATE SET `b` = COALESCE(s.`b`, t.`b`), `v` = COALESCE(s.`v`, t.`v`)"
        " WHEN NOT MATCHED THEN INSERT (`a`, `b`, `v`) VALUES (s.`a`, s.`b`, s.`v`)"
    )


def test_a_merge_in_turns_has_each_key_once() -> None:
    plain = load({"a": "INT64", "b": "INT64", "v": "TIMESTAMP", "_unmapped": "JSON"})
    asked = replace(plain, merge=Merge(("a",), "v", in_turns=True, losing=frozenset({"b"})))
    schema = statements.file_schema(DIALECT, asked)
    assert schema.names == ["a", "b", "v", "_unmapped", "#turn", "#after", "#upto"]
    merge = statements.load_script(DIALECT, asked, "st", schema, None).text.split(";\n")[1]
    (tree,) = parsed(merge)
    assert isinstance(tree, exp.Merge)
    assert tree.args["using"].find(exp.Union) is not None
    empties = "`b` = CASE WHEN JSON_QUERY(s.`_unmapped`, '$.b') IS NOT NULL THEN NULL ELSE COALESCE(s.`b`, t.`b`) END"
    assert empties in merge
    assert "WHERE s.`#turn` = 0 AND t.`v` IS NULL OR s.`#turn` >= 0 AND t.`v` <= s.`#upto`" in merge


def test_a_column_that_takes_no_single_values_is_left_out() -> None:
    asked = load({"a": "INT64", "tags": "ARRAY<STRING>", "inner": "STRUCT"})
    text = statements.load_script(DIALECT, asked, "st", statements.file_schema(DIALECT, asked), None).text
    assert text.split(";\n")[1] == f"INSERT INTO {T} (`a`) SELECT `a` FROM `my-project`.`shop`.`st`"


def test_tables_of_ours_are_bigquerys() -> None:
    schema = pa.schema({"a": pa.int64(), "b": pa.string(), "c": pa.timestamp("us", "UTC")})
    staged = statements.create_staged_statement(DIALECT, "st", schema)
    assert staged.startswith("CREATE TABLE `my-project`.`shop`.`st` (`a` INT64, `b` STRING, `c` TIMESTAMP) OPTIONS")
    texts = [staged, statements.create_marks_statement(DIALECT)]
    assert [type(tree) for text in texts for tree in parsed(text)] == [exp.Create, exp.Create]


@pytest.mark.parametrize(("number", "most"), [(999, None), (1_050, None), (1_100, 100), (5_000, 4_000)])
def test_old_marks_go_now_and_then(number: int, most: int | None) -> None:
    found = statements.delete_marks_statement(DIALECT, Batch("ledger", "route", number, {}))
    assert (found.values["batch"] if found else None) == most
    if found:
        assert [type(tree) for tree in parsed(found.text)] == [exp.Delete]


def test_a_job_id_is_that_of_the_load_and_of_no_other() -> None:
    places = [
        (scope, route, number, table)
        for scope in ("a", "ab")
        for route in ("b", "bc", 'b", "c')
        for number in (1, 11)
        for table in ("t", "1t")
    ]
    marks = [Mark(Batch(scope, route, number, {}), table, 0) for scope, route, number, table in places]
    ids = [statements.job_id(mark, attempt) for mark in marks for attempt in range(2)]
    assert len(set(ids)) == len(ids)
    assert statements.job_id(MARK, 0) == statements.job_id(Mark(MARK.batch, "t", 99, "other rows"), 0)
    assert all(set(found) <= set("abcdefghijklmnopqrstuvwxyz0123456789_") for found in ids)


# Types


@pytest.mark.parametrize(
    ("inner", "asked", "expected"),
    [
        (InnerType.STRING, None, "STRING"),
        (InnerType.FLOAT64, None, "FLOAT64"),
        (InnerType.INT64, None, "INT64"),
        (InnerType.BOOL, None, "BOOL"),
        (InnerType.TIMESTAMP, None, "TIMESTAMP"),
        (InnerType.INT64, "integer", "INT64"),
        (InnerType.INT64, "bigint", "INT64"),
        (InnerType.FLOAT64, "double precision", "FLOAT64"),
        (InnerType.FLOAT64, "float", "FLOAT64"),
        (InnerType.FLOAT64, "numeric", "BIGNUMERIC(38, 18)"),
        (InnerType.FLOAT64, "numeric(12,2)", "NUMERIC(12, 2)"),
        (InnerType.FLOAT64, "decimal(38, 10)", "BIGNUMERIC(38, 10)"),
        (InnerType.STRING, "text", "STRING"),
        (InnerType.STRING, "character varying(20)", "STRING(20)"),
        (InnerType.STRING, "jsonb", "JSON"),
        (InnerType.STRING, "Date", "DATE"),
        (InnerType.TIMESTAMP, "timestamptz", "TIMESTAMP"),
        (InnerType.TIMESTAMP, "datetime", "DATETIME"),
        (InnerType.BOOL, "boolean", "BOOL"),
    ],
)
def test_every_inner_type_and_cast_has_a_type(inner: InnerType, asked: str | None, expected: str) -> None:
    assert DIALECT.typed_column(Column("a", ("/a",), inner, asked)).type == expected
    parsed(f"CREATE TABLE t (a {expected})")


@pytest.mark.parametrize("asked", ["frobnicate", "int[]", "int) --", "int; x", "'x'", "super duper", "numeric(99,2)"])
def test_what_is_no_type_never_reaches_a_statement(asked: str) -> None:
    with pytest.raises(PenstockError, match="PEN-DST-020"):
        DIALECT.cast_type(asked)


@pytest.mark.parametrize("name", ["a`b", "a\\b"])
def test_a_name_cannot_leave_its_quotes(name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        DIALECT.identifier(name)


@pytest.mark.parametrize(
    ("field", "expected", "staged"),
    [
        (("INTEGER", "NULLABLE", None, None, None), "INT64", "INT64"),
        (("FLOAT", "REQUIRED", None, None, None), "FLOAT64", "FLOAT64"),
        (("BOOLEAN", None, None, None, None), "BOOL", "BOOL"),
        (("STRING", "NULLABLE", None, None, 20), "STRING(20)", "STRING"),
        (("NUMERIC", "NULLABLE", 12, 2, None), "NUMERIC(12, 2)", "STRING"),
        (("NUMERIC", "NULLABLE", 12, None, None), "NUMERIC(12, 0)", "STRING"),
        (("BIGNUMERIC", "NULLABLE", None, None, None), "BIGNUMERIC", "STRING"),
        (("TIMESTAMP", "NULLABLE", None, None, None), "TIMESTAMP", "TIMESTAMP"),
        (("DATETIME", "NULLABLE", None, None, None), "DATETIME", "TIMESTAMP"),
        (("JSON", "NULLABLE", None, None, None), "JSON", "STRING"),
        (("STRING", "REPEATED", None, None, None), "ARRAY<STRING>", "STRING"),
        (("RECORD", "NULLABLE", None, None, None), "STRUCT", "STRING"),
    ],
)
def test_a_real_column_is_known_by_its_name_in_statements(
    field: tuple[str, str | None, int | None, int | None, int | None], expected: str, staged: str
) -> None:
    found = statements.column_type(*field)
    assert found == expected
    (column,) = statements.file_schema(DIALECT, load({"a": found}))
    assert statements.staged_type(column.type) == staged


def test_rows_of_a_file_have_all_its_columns() -> None:
    schema = pa.schema({"a": pa.int64(), "n": pa.string(), "c": pa.bool_()})
    rows = pa.RecordBatch.from_pydict({"n": pa.array([Decimal("1E-9"), None], pa.decimal128(38, 9)), "a": [1, 2]})
    assert statements.file_rows(rows, schema).to_pydict() == {
        "a": [1, 2], "n": ["0.000000001", None], "c": [None, None]
    }  # fmt: skip


# Errors


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.BadRequest("Bad value: Invalid date 'soon'"), RefusedError),
        (exceptions.BadRequest("Required column value for column index 0 is missing"), RefusedError),
        (exceptions.BadRequest("Transaction is aborted due to concurrent update against table x"), TransientError),
        (exceptions.BadRequest("Unrecognized name: b at [1:2]"), TransientError),
        (exceptions.Forbidden("rateLimitExceeded"), TransientError),
        (exceptions.NotFound("Not found: Dataset"), TransientError),
        (exceptions.TooManyRequests("slow down"), TransientError),
        (exceptions.InternalServerError("backend"), TransientError),
        (exceptions.ServiceUnavailable("away"), TransientError),
        (exceptions.RetryError("gave up", cause=OSError()), TransientError),
        (DefaultCredentialsError("no credentials"), TransientError),
        (ConnectionError("reset"), TransientError),
        (JobTimeout(), TransientError),
    ],
)
def test_an_error_is_about_the_rows_or_about_now(error: Exception, kind: type[PenstockError]) -> None:
    assert type(as_penstock_error(error)) is kind
    assert type(as_penstock_error(error, refuses=False)) is TransientError


@pytest.mark.parametrize("wrong", [{"dataset": "a`b"}, {"dataset": "a-b"}, {"project": "x`"}, {"project": ""}])
def test_what_would_break_a_statement_is_refused_with_the_config(wrong: dict[str, str]) -> None:
    good = {"project": "example.com:my-project", "dataset": "shop_1"}
    assert BigqueryConfig.model_validate(good).dataset == "shop_1"
    with pytest.raises(ValidationError):
        BigqueryConfig.model_validate({**good, **wrong})
