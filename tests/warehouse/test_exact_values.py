"""Numbers arrive digit for digit or are kept aside so; text and keys are never touched. In DuckDB and PostgreSQL."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from penstock.destinations.contract import AnyDestination
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.destination import DuckdbDestination
from penstock.destinations.postgres.config import PostgresConfig
from penstock.destinations.postgres.destination import PostgresDestination
from penstock.testing.destination import Staging, batch
from tests.support.database import Database
from tests.support.duckdb_file import open_file

NUMBERS = {
    "bigint": "bigint",
    "integer": "integer",
    "smallint": "smallint",
    "cents": "numeric(12,2)",
    "wide": "numeric(38,18)",
    "whole": "numeric(38,0)",
    "single": "real",
    "double": "double precision",
    "text": "text",
}
POSTGRES = {**NUMBERS, "wider": "numeric(60,20)", "any": "numeric"}
DUCKDB = {**NUMBERS, "huge": "HUGEINT", "unsigned": "UBIGINT", "tiny": "TINYINT", "uhuge": "UHUGEINT"}


@dataclass
class Engine:
    """A destination that outlives the examples: each has a table of its own."""

    types: Mapping[str, str]
    make: Callable[[dict[str, Any]], AnyDestination]
    ask: Callable[[str], list[tuple[Any, ...]]]
    folder: Path
    json: str
    made: int = field(default=0)

    def table(self, columns: str) -> str:
        self.made += 1
        name = f"t{self.made}"
        self.ask(f"CREATE TABLE {name} ({columns}, _unmapped {self.json})")
        return name

    def load(
        self, table: str, documents: Sequence[bytes], casts: Mapping[str, str] | None = None, **options: Any
    ) -> int:
        """How many failed."""
        destination = self.make({"table": table, "adopt": [table], "max_tables": 10_000, **options})
        self.made += 1
        parts = Staging(destination, self.folder, casts).stage(documents)
        receipt = destination.write(batch(self.made), parts)
        assert not [found.unavailable for found in receipt.tables if found.unavailable]
        return len(documents) - receipt.rows

    def rows(self, table: str, names: Sequence[str], order: str = "n") -> list[tuple[Any, ...]]:
        listed = ", ".join(f"CAST({name} AS VARCHAR)" for name in names)
        return self.ask(f"SELECT {listed} FROM {table} ORDER BY {order}")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as found:
        yield Path(found)


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def engine(request: pytest.FixtureRequest, folder: Path) -> Iterator[Engine]:
    if request.param == "duckdb":
        path = folder / "values.duckdb"

        def ask_duckdb(query: str) -> list[tuple[Any, ...]]:
            with open_file(path) as connection:
                return connection.execute(query).fetchall()

        yield Engine(
            DUCKDB,
            lambda options: DuckdbDestination(DuckdbConfig.model_validate({"path": path, **options})),
            ask_duckdb,
            folder,
            "JSON",
        )
        return
    dsn = request.getfixturevalue("postgres_url")
    database = Database(dsn, "exact_values")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(b'CREATE SCHEMA IF NOT EXISTS "exact_values"')
        connection.execute(b'SET search_path = "exact_values"')

        def ask_postgres(query: str) -> list[tuple[Any, ...]]:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

        place = {"url": dsn, "database_schema": database.schema}
        yield Engine(
            POSTGRES,
            lambda options: PostgresDestination(PostgresConfig.model_validate({**place, **options})),
            ask_postgres,
            folder,
            "jsonb",
        )
        connection.execute(b'DROP SCHEMA "exact_values" CASCADE')


SOME = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


@st.composite
def decimal_texts(draw: st.DrawFn) -> str:
    """Numbers as JSON spells them, of up to 40 digits."""
    digits = draw(st.text("0123456789", min_size=1, max_size=draw(st.sampled_from([1, 3, 6, 9, 16, 19, 40]))))
    digits = digits.lstrip("0") or "0"
    cut = draw(st.integers(1, len(digits)))
    whole, fraction = digits[:cut], digits[cut:]
    if draw(st.booleans()):
        whole, fraction = "0", draw(st.sampled_from(["", "0", "000"])) + digits
    number = draw(st.sampled_from(["", "-"])) + whole + (f".{fraction}" if fraction else "")
    power = draw(st.none() | st.integers(-45, 45) | st.sampled_from([-400, 400, 30000]))
    return number if power is None else f"{number}{draw(st.sampled_from('eE'))}{power}"


KNOWN = ["12345678901234567.89", "1234567890123456.78", "12.345", "0.1000000000000000055511151231257827", "-0.0",
         "0.1234567890123456789", "1e400", "1E-30", "9007199254740993", "1152921504606846976", "16777217", "0.1",
         "3.4028236e38", "1.50", "1e2", "-9223372036854775809", "18446744073709551615", "19.99", "1e-5",
         "3e10", "-0", "1100000.2"]  # fmt: skip


def check_number(sent: str, quoted: bool, column: str, cell: str | None, kept: object) -> None:
    """``kept`` is what ``_unmapped`` has for the column."""
    said = f"{'text' if quoted else 'number'} {sent} in {column}"
    if cell is not None:
        assert kept is None, f"{said} is in two places"
        if column == "text":
            # To JSON a zero has no sign.
            assert cell == sent or (sent, quoted, cell) == ("-0", False, "0"), f"{said} became {cell}"
        else:
            # Of a number of 32 bits DuckDB writes more digits than it has: it stores the one nearest to 1100000.2. For
            # the double nearest to 5.01e21 PostgreSQL writes 5.009999999999999e+21, which is the same double.
            stored = str(np.float32(cell)) if column == "single" else str(float(cell)) if column == "double" else cell
            assert Decimal(stored) == Decimal(sent), f"{said} became {cell}"
    elif quoted:
        assert kept == sent, f"{said} is kept as {kept}"
    else:
        assert isinstance(kept, (Decimal, str)), f"{said} is kept as {kept!r}"
        assert Decimal(kept) == Decimal(sent), f"{said} is kept as {kept}"


def aside(text: str | None) -> dict[str, object]:
    return {} if text is None else json.loads(text, parse_float=Decimal, parse_int=Decimal)


def check_numbers(engine: Engine, table: str, texts: Sequence[tuple[str, bool]]) -> None:
    names = list(engine.types)
    found = engine.rows(table, [f"c_{name}" for name in names] + ["_unmapped"])
    assert len(found) == len(texts)
    for (sent, quoted), row in zip(texts, found, strict=True):
        kept = aside(row[-1])
        for name, cell in zip(names, row, strict=False):
            check_number(sent, quoted, name, cell, kept.get(f"c_{name}"))


def documents_of(engine: Engine, texts: Sequence[tuple[str, bool]]) -> list[bytes]:
    return [
        (f'{{"n":{n},' + ",".join(f'"c_{name}":{_json(*text)}' for name in engine.types) + "}").encode()
        for n, text in enumerate(texts)
    ]


def _json(text: str, quoted: bool) -> str:
    return f'"{text}"' if quoted else text


VALUES = st.lists(st.tuples(decimal_texts() | st.sampled_from(KNOWN), st.booleans()), min_size=1, max_size=40)


@SOME
@given(VALUES)
def test_a_number_is_in_its_column_or_aside_digit_for_digit(engine: Engine, texts: list[tuple[str, bool]]) -> None:
    columns = ", ".join(f"c_{name} {kind}" for name, kind in engine.types.items())
    table = engine.table(f"n bigint, {columns}")
    assert engine.load(table, documents_of(engine, texts)) == 0
    check_numbers(engine, table, texts)


@SOME
@given(VALUES)
@example([("5.01e21", False)])
def test_a_cast_gives_the_number_that_was_sent_or_keeps_it_aside(engine: Engine, texts: list[tuple[str, bool]]) -> None:
    columns = ", ".join(f"c_{name} {kind}" for name, kind in engine.types.items())
    table = engine.table(f"n bigint, {columns}")
    casts = {f"/c_{name}": kind for name, kind in engine.types.items()}
    assert engine.load(table, documents_of(engine, texts), casts) == 0
    check_numbers(engine, table, texts)


@SOME
@given(VALUES, st.sampled_from(sorted(NUMBERS)))
def test_a_number_that_does_not_fit_fails_if_it_shall(
    engine: Engine, texts: list[tuple[str, bool]], column: str
) -> None:
    table = engine.table(f"n bigint, c {engine.types[column]}")
    documents = [f'{{"n":{n},"c":{_json(*text)}}}'.encode() for n, text in enumerate(texts)]
    failed = engine.load(table, documents, on_type_conflict="fail")
    found = dict(engine.rows(table, ["n", "c"]))
    assert len(found) + failed == len(texts)
    for n, (sent, quoted) in enumerate(texts):
        if str(n) in found:
            check_number(sent, quoted, column, found[str(n)], None)


@SOME
@given(VALUES)
def test_numbers_in_new_columns_are_those_that_were_sent(engine: Engine, texts: list[tuple[str, bool]]) -> None:
    engine.made += 1
    table = f"t{engine.made}"
    documents = [f'{{"n":{n},"c":{_json(*text)}}}'.encode() for n, text in enumerate(texts)]
    assert engine.load(table, [*documents, b'{"n":1000,"c":1.5,"C":1}']) == 0
    for (sent, quoted), (cell, kept) in zip(texts, engine.rows(table, ["c", "_unmapped"]), strict=False):
        is_text = engine.ask(f"SELECT data_type FROM information_schema.columns WHERE table_name = '{table}'"
                             " AND column_name = 'c'")[0][0] in ("text", "VARCHAR")  # fmt: skip
        check_number(sent, quoted, "text" if is_text else "c", cell, aside(kept).get("c"))


@pytest.mark.parametrize(
    ("kind", "sent", "fits"),
    [
        ("timestamp", "2026-01-01T00:00:00.123456", True),
        ("timestamp", "2026-01-01T00:00:00.123456789", False),
        ("timestamp", "2026-01-01T00:00:00.123456000", True),
        ("date", "2026-01-01", True),
        ("date", "2026-01-01T10:00:00Z", False),
        ("time", "10:00:00.123456", True),
        ("time", "10:00:00.1234567", False),
        ("boolean", "2", False),
        ("numeric(12,2)", "12.345", False),
    ],
)
def test_a_cast_rounds_nothing_and_cuts_nothing(engine: Engine, kind: str, sent: str, fits: bool) -> None:
    engine.made += 1
    table = f"t{engine.made}"
    assert engine.load(table, [json.dumps({"n": 1, "c": sent}).encode(), b'{"n":2,"a":1,"A":1}'], {"/c": kind}) == 0
    cell, kept = engine.rows(table, ["c", "_unmapped"])[0]
    assert (cell is not None) == fits
    assert aside(kept) == ({} if fits else {"c": sent})


ODD = ["invoice10023", "d41d8cd98f00b204e9800998ecf8427e", "1e99999", '"e12345"', "1" * 17_000, "\\u0000", "\\ud800",
       "}", "{", '","a":1e99999', "0.10000000000000000001"]  # fmt: skip
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12) | st.sampled_from(ODD)
LEAVES = TEXT | st.integers(-(10**30), 10**30) | st.booleans() | st.none()
INNER = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)


@SOME
@given(st.lists(st.tuples(TEXT, INNER), min_size=1, max_size=6))
def test_text_and_keys_in_unmapped_come_back_as_they_were(engine: Engine, sent: list[tuple[str, Any]]) -> None:
    table = engine.table("n bigint, v bigint, w bigint")
    documents = [
        json.dumps({"n": n, "v": text, "w": [inner, {text: text}], "a_": 1, "a-": text}, ensure_ascii=False).encode()
        for n, (text, inner) in enumerate(sent)
    ]
    assert engine.load(table, documents) == 0
    for (text, inner), (v, w, kept) in zip(sent, engine.rows(table, ["v", "w", "_unmapped"]), strict=True):
        found = aside(kept)
        assert v == text if v is not None else found.pop("v") == text
        assert w is None
        assert found == {"w": json.loads(json.dumps([inner, {text: text}]), parse_int=Decimal), "/a-": text}


@SOME
@given(
    st.lists(TEXT, min_size=3, max_size=3),
    decimal_texts().filter(lambda text: "400" not in text and "3000" not in text),
)
def test_what_is_kept_aside_survives_merges(engine: Engine, texts: list[str], number: str) -> None:
    table = engine.table("n bigint, v bigint, w bigint, x boolean, y boolean")
    first, second, third = texts

    def load(**members: str) -> None:
        inside = ",".join([f'"{name}":{value}' for name, value in {"n": "1", **members}.items()])
        assert engine.load(table, [f"{{{inside}}}".encode()], primary_key=["n"]) == 0

    engine.ask(f"ALTER TABLE {table} ADD PRIMARY KEY (n)")
    load(v=json.dumps(f"x{first}"), x=f"[{number},{json.dumps(second)}]", y=json.dumps(f"x{second}"))
    load(y="true", w=json.dumps(f"x{third}"))
    load(v=json.dumps(f"y{third}"))
    ((y, kept),) = engine.rows(table, ["y", "_unmapped"])
    assert y == "true"
    found = aside(kept)
    given_number = found.pop("x")
    assert isinstance(given_number, list)
    assert Decimal(given_number[0]) == Decimal(number)
    assert given_number[1] == second
    assert found == {"v": f"y{third}", "w": f"x{third}"}


def test_both_values_of_a_repeated_key_are_kept_in_unmapped(engine: Engine) -> None:
    table = engine.table("n bigint, v bigint")
    assert engine.load(table, [b'{"n":1,"v":[{"a":1,"a":2}],"a":1,"a":2,"a_1":0,"a#1":5}']) == 0
    ((kept,),) = engine.rows(table, ["_unmapped"])
    assert re.sub(r'\\|"| ', "", kept).count("a:1,a:2") == 1
    found = aside(kept)
    assert {found["/a#1"], found["/a#1#"]} == {Decimal(1), Decimal(5)}
