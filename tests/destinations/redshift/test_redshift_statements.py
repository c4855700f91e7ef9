"""Every statement that Redshift gets, read by sqlglot as Redshift."""

from decimal import Decimal
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
import sqlglot
from pydantic import ValidationError
from sqlglot import exp

from penstock.destinations.redshift import session
from penstock.destinations.redshift.config import RedshiftConfig
from penstock.destinations.redshift.dialect import redshift_dialect
from penstock.destinations.redshift.session import as_penstock_error
from penstock.destinations.redshift.stage_files import FILE_BYTES, Bucket, Run, csv_bytes
from penstock.destinations.sql.config import FloatType
from penstock.destinations.sql.load.merge_rows import Merge
from penstock.destinations.sql.schema.schema_operations import (
    AddColumn,
    CreateTable,
    DropKey,
    Key,
    Operation,
    SetKey,
    Table,
    TypedColumn,
)
from penstock.errors import PenstockError, RefusedError, TransientError
from penstock.flatten.column import Column
from penstock.flatten.inner_types import InnerType

DIALECT = redshift_dialect("shop")
A, B = TypedColumn("a", "bigint"), TypedColumn("b", "character varying(65535)")
KEY = Key("t_penstock_key", ("a",))
TABLE = Table("t", {name: TypedColumn(name, "bigint") for name in ("a", "b", "c", "v")})


def parsed(text: str) -> list[exp.Expression]:
    """The statements of a text, each understood whole."""
    trees = sqlglot.parse(text, read="redshift")
    assert not any(tree is None or isinstance(tree, exp.Command) for tree in trees), text
    return [tree for tree in trees if tree is not None]


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (CreateTable("t", (A, B)), 'CREATE TABLE IF NOT EXISTS "shop"."t" ("a" bigint, "b" character varying(65535))'),
        (
            CreateTable("t", (A,), KEY),
            'CREATE TABLE IF NOT EXISTS "shop"."t" ("a" bigint, CONSTRAINT "t_penstock_key" PRIMARY KEY ("a"))',
        ),
        (AddColumn("t", B), 'ALTER TABLE "shop"."t" ADD COLUMN "b" character varying(65535)'),
        (AddColumn("t", DIALECT.unmapped_column), 'ALTER TABLE "shop"."t" ADD COLUMN "_unmapped" super'),
        (SetKey("t", KEY), 'ALTER TABLE "shop"."t" ADD CONSTRAINT "t_penstock_key" PRIMARY KEY ("a")'),
        (DropKey("t", KEY), 'ALTER TABLE "shop"."t" DROP CONSTRAINT "t_penstock_key"'),
    ],
)
def test_an_operation_is_one_statement(operation: Operation, text: str) -> None:
    assert DIALECT.render(operation) == text
    assert len(parsed(text)) == 1


MOVE = (
    'INSERT INTO "shop"."t" ({0}) SELECT {1} FROM "st" AS s'
    ' LEFT JOIN "shop"."t" ON "t"."a" = s."a" WHERE "t"."a" IS NULL'
)


@pytest.mark.parametrize(
    ("columns", "version", "text"),
    [
        (
            ["a", "b"],
            None,
            'UPDATE "shop"."t" SET "b" = COALESCE(s."b", "t"."b") FROM "st" AS s WHERE "t"."a" = s."a"; '
            + MOVE.format('"a", "b"', 's."a", s."b"'),
        ),
        (["a"], None, MOVE.format('"a"', 's."a"')),
        (
            ["a", "v"],
            "v",
            'UPDATE "shop"."t" SET "v" = COALESCE(s."v", "t"."v") FROM "st" AS s'
            ' WHERE "t"."a" = s."a" AND ("t"."v" IS NULL OR s."v" >= "t"."v"); '
            + MOVE.format('"a", "v"', 's."a", s."v"'),
        ),
        (["a"], "v", MOVE.format('"a"', 's."a"')),
    ],
)
def test_a_merge_updates_what_is_there_and_inserts_the_rest(columns: list[str], version: str | None, text: str) -> None:
    found = DIALECT.merge(TABLE, '"st"', columns, Merge(("a",), version))
    assert found == text
    assert [type(tree) for tree in parsed(found)] == ([exp.Update] if "UPDATE" in text else []) + [exp.Insert]


@pytest.mark.parametrize(
    ("bucket", "middle"),
    [
        (Bucket("s3://b/p"), "IAM_ROLE default"),
        (Bucket("s3://b/p", "arn:aws:iam::1:role/x"), "IAM_ROLE 'arn:aws:iam::1:role/x'"),
        (Bucket("s3://b/p", region="eu-west-1"), "IAM_ROLE default REGION 'eu-west-1'"),
    ],
)
def test_files_are_loaded_by_one_copy(bucket: Bucket, middle: str) -> None:
    text = bucket.copy(DIALECT, '"st"', Run("s3://b/p/x/run-1.", ("a", "b"), "null:1f"))
    assert text == (
        f'COPY "st" ("a", "b") FROM \'s3://b/p/x/run-1.\' {middle} FORMAT CSV GZIP NULL AS \'null:1f\''
        " TIMEFORMAT 'auto' DATEFORMAT 'auto' COMPUPDATE OFF STATUPDATE OFF MAXERROR 0"
    )
    assert [type(tree) for tree in parsed(text)] == [exp.Copy]


@pytest.mark.parametrize("text", [session.COLUMNS, session.KEY, session.LOAD_ERROR])
def test_catalogue_queries_are_redshifts(text: str) -> None:
    assert [type(tree) for tree in parsed(text.replace("%s", "'x'"))] == [exp.Select]


def test_the_table_of_marks_is_redshifts() -> None:
    assert [type(tree) for tree in parsed(f"CREATE TABLE IF NOT EXISTS m ({session.MARK_COLUMNS})")] == [exp.Create]


@pytest.mark.parametrize(
    ("inner", "asked", "expected"),
    [
        (InnerType.STRING, None, "character varying(65535)"),
        (InnerType.FLOAT64, None, "numeric(38,18)"),
        (InnerType.INT64, None, "bigint"),
        (InnerType.BOOL, None, "boolean"),
        (InnerType.TIMESTAMP, None, "timestamp with time zone"),
        (InnerType.STRING, "text", "character varying(65535)"),
        (InnerType.STRING, "varchar(20)", "varchar(20)"),
        (InnerType.STRING, "jsonb", "super"),
        (InnerType.FLOAT64, "Numeric", "numeric(38,18)"),
        (InnerType.FLOAT64, "double", "double precision"),
        (InnerType.TIMESTAMP, "timestamptz", "timestamp with time zone"),
    ],
)
def test_every_inner_type_and_cast_has_a_type(inner: InnerType, asked: str | None, expected: str) -> None:
    assert DIALECT.typed_column(Column("a", ("/a",), inner, asked)).type == expected
    parsed(f"CREATE TABLE t (a {expected})")


def test_numbers_may_be_doubles_instead() -> None:
    assert redshift_dialect("s", FloatType.DOUBLE).types[InnerType.FLOAT64] == "double precision"


@pytest.mark.parametrize("asked", ["int[]", "int) --", "'x'"])
def test_what_is_no_type_never_reaches_a_statement(asked: str) -> None:
    with pytest.raises(PenstockError, match="PEN-DST-020"):
        DIALECT.cast_type(asked)


def test_rows_become_lines_that_copy_reads() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "text": pa.array(["", None, 'a"b,\n'], pa.string()),
            "decimal": pa.array([Decimal("0E-18"), None, Decimal("1E-18")], pa.decimal128(38, 18)),
            "time": pa.array([0, None, 1_714_550_400_123_456], pa.timestamp("us", "UTC")),
            "flag": pa.array([True, None, False]),
            "number": pa.array([1e30, None, 7.0]),
        }
    )
    assert csv_bytes(rows, "null:1").to_pybytes().decode() == (
        '"","0",1970-01-01 00:00:00.000000,true,1e+30\n'
        '"null:1",,,,\n'
        '"a""b,\n","0.000000000000000001",2024-05-01 08:00:00.123456,false,7\n'
    )


def test_many_rows_become_several_files_of_one_run(tmp_path: Path) -> None:
    text = "x" * (FILE_BYTES // 80)
    wide = pa.RecordBatch.from_pydict({"a": [text] * 50})
    narrow = pa.RecordBatch.from_pydict({"b": [1]})
    with Bucket(f"file://{tmp_path}").folder() as folder:
        readers = [pa.RecordBatchReader.from_batches(rows.schema, [rows]) for rows in (wide, narrow, wide, wide)]
        runs = folder.write(readers)
        assert [run.columns for run in runs] == [("a",), ("b",)]
        names = sorted(path.name for path in tmp_path.glob("*/*"))
        assert names == ["run-1.0.csv.gz", "run-1.1.csv.gz", "run-2.0.csv.gz"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.InternalError("Load into table 't' failed.  Check 'stl_load_errors' system table"), RefusedError),
        (psycopg.errors.NotNullViolation("no"), RefusedError),
        (psycopg.errors.NumericValueOutOfRange("no"), RefusedError),
        (psycopg.InternalError("1023 DETAIL: Serializable isolation violation on table"), TransientError),
        (psycopg.InternalError("S3ServiceException:Access Denied,Status 403"), TransientError),
        (psycopg.OperationalError("server closed the connection unexpectedly"), TransientError),
        (psycopg.errors.UndefinedTable("gone"), TransientError),
    ],
)
def test_an_error_is_about_the_rows_or_about_now(error: psycopg.Error, kind: type[PenstockError]) -> None:
    assert type(as_penstock_error(error)) is kind
    assert type(as_penstock_error(error, refuses=False)) is TransientError


@pytest.mark.parametrize(
    "wrong",
    [
        {"staging": "bucket/prefix"},
        {"staging": "s3://b/p' IAM_ROLE default; --"},
        {"staging": "s3://key:secret@b?x=1"},
        {"iam_role": "x' --"},
        {"region": "'"},
        {"database_schema": "a%s"},
        {"url": "host"},
    ],
)
def test_what_would_break_a_statement_is_refused_with_the_config(wrong: dict[str, str]) -> None:
    good = {
        "url": "postgresql://h/d",
        "staging": "s3://b/p/",
        "iam_role": "arn:aws:iam::12:role/x",
        "region": "eu-west-1",
    }
    assert RedshiftConfig.model_validate(good).staging == "s3://b/p"
    with pytest.raises(ValidationError):
        RedshiftConfig.model_validate({**good, **wrong})
