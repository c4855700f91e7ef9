"""Every common type has one spelling in JSON, the same in the copy and in a change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sources.postgres.rig import Rig, rows_of

CASES: list[tuple[str, str, Any]] = [
    # type, value in SQL, JSON text
    ("smallint", "-32768", "-32768"),
    ("integer", "2147483647", "2147483647"),
    ("bigint", "9223372036854775807", "9223372036854775807"),
    ("real", "0.1", "0.1"),
    ("double precision", "1e300", "1e+300"),
    ("double precision", "-0.1", "-0.1"),
    ("double precision", "'NaN'", '"NaN"'),
    ("double precision", "'-Infinity'", '"-Infinity"'),
    ("numeric", "123456789012345678901234567890.123456789", "123456789012345678901234567890.123456789"),
    ("numeric", "'NaN'", '"NaN"'),
    ("numeric(10,2)", "2.5", "2.50"),
    ("numeric(10,2)", "-.5", "-0.50"),
    ("boolean", "true", "true"),
    ("boolean", "false", "false"),
    ("text", "'plain'", '"plain"'),
    ("text", "''", '""'),
    ("text", "E'tab\\t newline\\n cr\\r quote\" back\\\\slash \\x01\\x0b\\x08\\x0c \\\\N \\\\.'",
     json.dumps('tab\t newline\n cr\r quote" back\\slash \x01\x0b\x08\x0c \\N \\.')),
    ("text", "'zürich 東京 🎉'", '"zürich 東京 🎉"'),
    ("text", "'\\N'", '"\\\\N"'),
    ("character varying(20)", "'vc'", '"vc"'),
    ("character(4)", "'ab'", '"ab  "'),
    ("json", "E'{\"b\": 1,\\n \\t\"b\": [2.50, null]}'", '{"b": 1,   "b": [2.50, null]}'),
    ("jsonb", "'{\"b\": 1e2, \"a\": \"x\\ny\"}'", '{"a": "x\\ny", "b": 100}'),
    ("jsonb", "'null'", "null"),
    ("jsonb", "'\"text\"'", '"text"'),
    ("timestamp with time zone", "'2026-01-02 03:04:05.123456+01'", '"2026-01-02T02:04:05.123456Z"'),
    ("timestamp with time zone", "'2026-01-02 03:04:05+00'", '"2026-01-02T03:04:05Z"'),
    ("timestamp with time zone", "'infinity'", '"infinity"'),
    ("timestamp with time zone", "'0044-03-15 12:00:00+00 BC'", '"0044-03-15 12:00:00+00 BC"'),
    ("timestamp with time zone", "'12026-01-02 03:04:05+00'", '"12026-01-02 03:04:05+00"'),
    ("timestamp(3) without time zone", "'2026-01-02 03:04:05.1'", '"2026-01-02T03:04:05.1"'),
    ("timestamp without time zone", "'-infinity'", '"-infinity"'),
    ("timestamp without time zone", "'0044-03-15 12:00:00 BC'", '"0044-03-15 12:00:00 BC"'),
    ("date", "'2026-01-02'", '"2026-01-02"'),
    ("time without time zone", "'03:04:05.5'", '"03:04:05.5"'),
    ("interval", "'1 day 02:00'", '"1 day 02:00:00"'),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
    ("bytea", "'\\x00ff5c0a'", '"\\\\x00ff5c0a"'),
    ("inet", "'10.0.0.1/8'", '"10.0.0.1/8"'),
    ("integer[]", "'{1,NULL,3}'", '"{1,NULL,3}"'),
    ("text[]", "ARRAY['a b','c\"d']", '"{\\"a b\\",\\"c\\\\\\"d\\"}"'),
    ("point", "'(1,2)'", '"(1,2)"'),
    ("public.mood", "'glad'", '"glad"'),
    ("int4range", "'[1,5)'", '"[1,5)"'),
]  # fmt: skip


def test_a_value_is_written_the_same_when_copied_and_when_changed(rig: Rig) -> None:
    rig.ask("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    names = [f"c{i}" for i in range(len(CASES))]
    columns = ", ".join(f"{name} {case[0]}" for name, case in zip(names, CASES, strict=True))
    values = ", ".join(case[1] for case in CASES)
    nulls = ", ".join("NULL" for _ in CASES)
    rig.ask(f"CREATE TABLE t (id int PRIMARY KEY, {columns})", f"INSERT INTO t VALUES (1, {values}), (2, {nulls})")
    rig.catch_up()
    rig.ask(f"INSERT INTO t VALUES (3, {values}), (4, {nulls})", "UPDATE t SET c0 = c0 WHERE id = 1")
    rig.catch_up()
    copied, empty, _, inserted, nothing, updated = rig.records()
    expected = ",".join(f'"{name}":{case[2]}' for name, case in zip(names, CASES, strict=True))
    for number, record in ((1, copied), (3, inserted), (1, updated)):
        assert (record.data or b"").decode() == f'{{"id":{number},{expected}}}'
        json.loads(record.data or b"")
    for record in (empty, nothing):
        assert set(list(json.loads(record.data or b"").values())[1:]) == {None}
    told = [json.loads(record.headers["columns"]) for record in (copied, inserted)]
    assert told[0] == told[1]
    assert list(told[0].values())[1:] == [case[0] for case in CASES]


def test_a_domain_is_given_as_the_type_below_it(rig: Rig) -> None:
    rig.ask(
        "CREATE DOMAIN money2 AS numeric(12,2) CHECK (VALUE >= 0)",
        "CREATE DOMAIN price AS money2",
        "CREATE TABLE t (id int PRIMARY KEY, p price)",
        "INSERT INTO t VALUES (1, 2.5)",
    )
    copied, _ = rig.catch_up()
    rig.ask("UPDATE t SET p = 3")
    (changed,) = rig.catch_up()
    assert [copied.data, changed.data] == [b'{"id":1,"p":2.50}', b'{"id":1,"p":3.00}']
    assert copied.headers["columns"] == changed.headers["columns"] == '{"id":"integer","p":"numeric(12,2)"}'


def test_computed_columns_are_no_part_of_a_row(rig: Rig) -> None:
    rig.ask(
        "CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, name text)",
        "INSERT INTO t VALUES (1, DEFAULT, 'a')",
    )
    rig.catch_up()
    rig.ask("INSERT INTO t VALUES (2, DEFAULT, 'b')")
    rig.catch_up()
    assert rows_of(rig.records()) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


@pytest.mark.parametrize("name", ['we"ird', "ünder", "with space", "select", "back\\slash", "new\nline", "dot.ted"])
def test_names_may_be_anything(rig: Rig, name: str) -> None:
    sql = '"' + name.replace('"', '""') + '"'
    rig.ask(f"CREATE TABLE {sql} ({sql} int PRIMARY KEY, v int)", f"INSERT INTO {sql} VALUES (1, 1)")
    rig.catch_up()
    rig.ask(f"UPDATE {sql} SET v = 2")
    rig.catch_up()
    copied, _, changed = rig.records()
    assert copied.namespace == changed.namespace == f"public.{name}"
    assert json.loads(copied.key or "") == json.loads(changed.key or "") == {name: 1}
    assert json.loads(changed.data or b"") == {name: 1, "v": 2}
    assert json.loads(changed.headers["columns"]) == {name: "integer", "v": "integer"}


def test_a_table_without_columns_has_rows_all_the_same(rig: Rig) -> None:
    rig.ask("CREATE TABLE t ()", "ALTER TABLE t REPLICA IDENTITY FULL", "INSERT INTO t DEFAULT VALUES")
    rig.catch_up()
    rig.ask("INSERT INTO t DEFAULT VALUES")
    rig.catch_up()
    assert [r.data for r in rig.records()] == [b"{}", b'{"rows":1}', b"{}"]


def test_a_database_in_another_encoding_is_read_as_unicode(rig: Rig) -> None:
    rig.ask("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    latin = Rig(rig.url.rsplit("/", 1)[0] + "/latin", rig.folder)
    latin.ask("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'zürich')")
    try:
        latin.catch_up(slot="latin")
        latin.ask("UPDATE t SET v = 'köln'")
        latin.catch_up(slot="latin")
    finally:
        latin.ask("SELECT pg_drop_replication_slot('latin')")
        rig.ask("DROP DATABASE latin WITH (FORCE)")
    assert [row["v"] for row in rows_of(latin.records())] == ["zürich", "köln"]
