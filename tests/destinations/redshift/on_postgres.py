"""The destination ``redshift`` against a real PostgreSQL, with the one thing PostgreSQL lacks put in between: COPY from
a bucket. It reads the files as Redshift's manual says, and refuses every statement that is not Redshift's.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import sqlglot
from psycopg import sql
from sqlglot import exp

from penstock.destinations.redshift.config import RedshiftConfig
from penstock.destinations.redshift.destination import RedshiftDestination
from penstock.destinations.redshift.session import Connection

csv.field_size_limit(1 << 26)

COPY = re.compile(
    r"COPY (?P<table>\"\w+\") \((?P<columns>[^)]*)\) FROM 'file://(?P<prefix>[^']+)' IAM_ROLE default"
    r" FORMAT CSV GZIP NULL AS '(?P<null>[^']+)' TIMEFORMAT 'auto' DATEFORMAT 'auto'"
    r" COMPUPDATE OFF STATUPDATE OFF MAXERROR 0"
)
NOT_THERE = re.compile(
    r"\b(ON CONFLICT|LATERAL|ORDINALITY|SAVEPOINT|to_regclass|pg_advisory\w*|jsonb|trim_scale|RETURNING|STDIN|MERGE)\b",
    re.IGNORECASE,
)
"""What PostgreSQL would take and Redshift would not."""


REFUSED = "Load into table '_penstock_staged' failed. Check 'sys_load_error_detail' system table for details"


class BadData(psycopg.InternalError):
    """Redshift's answer to data that it cannot load has the code of an internal error."""

    sqlstate = "XX000"


class RedshiftCursor(psycopg.Cursor[Any]):
    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        text = (
            query if isinstance(query, str) else query.decode() if isinstance(query, bytes) else query.as_string(None)
        )
        refuse_foreign(text)
        assert params is None or all(isinstance(value, str) for value in params), "values are sent as text"
        if text.startswith("COPY "):
            self._copy(text)
            return self
        if "sys_load_error_detail" in text:
            return super().execute("SELECT 'a', 'Invalid digit'")
        if '."_unmapped"."' in text:
            # A path into a SUPER is spelled with dots.
            return super().execute(
                re.sub(r'(s\."_unmapped")\."(\w+)"', r"(\1->'\2')", text).encode(), params, **options
            )
        return super().execute(query, params, **options)

    def _copy(self, text: str) -> None:
        found = COPY.fullmatch(text)
        assert found, f"not the COPY that was agreed on: {text}"
        table, null, columns = found["table"], found["null"], found["columns"].replace('"', "").split(", ")
        texts = [self._type_of(table, column) in ("character varying", "super") for column in columns]
        out = io.StringIO()
        for row in bucket_rows(Path(found["prefix"])):
            assert len(row) == len(columns)
            for place, is_text in enumerate(texts):
                if not is_text and row[place] == "":
                    row[place] = null  # an empty field is NULL for every type but text
                if not is_text and re.fullmatch(r"-?[0-9.]+E.*", row[place]):
                    raise BadData(f"{REFUSED}: Invalid digit, Value 'E'")
                if "\0" in row[place]:
                    raise BadData(f"{REFUSED}: Missing newline: Unexpected character 0x00")
            csv.writer(out, lineterminator="\n").writerow(row)
        try:
            with self.copy(f"COPY {table} ({found['columns']}) FROM STDIN (FORMAT csv, NULL '{null}')") as copy:
                copy.write(out.getvalue())
        except psycopg.DataError as error:
            raise BadData(f"{REFUSED}: {error}") from error

    def _type_of(self, table: str, column: str) -> str:
        super().execute(
            "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = %s::regclass AND attname = %s",
            (table, column),
        )
        return str(self.fetchall()[0][0])


def bucket_rows(prefix: Path) -> Iterator[list[str]]:
    """The rows of every file whose name begins so."""
    files = sorted(path for path in prefix.parent.iterdir() if path.name.startswith(prefix.name))
    assert files, "COPY fails if there is nothing below its prefix"
    for path in files:
        yield from csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode(), newline=""))


def refuse_foreign(text: str) -> None:
    assert not NOT_THERE.search(text), f"Redshift does not know this: {text}"
    placeless = text.replace("%s", "'x'")
    if text.startswith(("LOCK ", "SET TIME ZONE")):
        return
    for tree in sqlglot.parse(placeless, read="redshift"):
        assert tree is not None
        assert not isinstance(tree, exp.Command), f"not Redshift's: {text}"


class OnPostgres(RedshiftDestination):
    def connect(self) -> Connection:
        connection = super().connect()
        connection.cursor_factory = RedshiftCursor
        return connection


def prepared(url: str, schema: str) -> None:
    """A schema of one test's own, and the one type that PostgreSQL does not have."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DO $$ BEGIN CREATE DOMAIN super AS json; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))


def made(url: str, schema: str, bucket: Path, **options: Any) -> OnPostgres:
    bucket.mkdir(exist_ok=True)
    options.setdefault("adopt", ("events",))
    return OnPostgres(RedshiftConfig(url=url, database_schema=schema, staging=f"file://{bucket}", **options))
