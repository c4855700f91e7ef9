"""What is done to a table arrives: every kind of change, once, in order, with what a mirror needs."""

from __future__ import annotations

import json

import pytest

from penstock.record import Header, Op
from tests.sources.postgres.rig import Rig, rows_of, told

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text, price numeric(8,2))"
LARGE = "CREATE TABLE large (id int PRIMARY KEY, small text, big text)"
BIG = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500) i)"


def test_rows_come_first_and_changes_after_them(rig: Rig) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1, 'one', 1.50), (2, NULL, NULL)")
    assert list(told(rig.catch_up())) == [
        ("insert", "copy", {"id": 1, "name": "one", "price": 1.50}),
        ("insert", "copy", {"id": 2, "name": None, "price": None}),
        ("noop", "complete", {"rows": 2}),
    ]
    rig.ask(
        "INSERT INTO items VALUES (3, 'three', 3)",
        "UPDATE items SET name = NULL WHERE id = 1",
        "DELETE FROM items WHERE id = 2",
        "TRUNCATE items",
    )
    assert list(told(rig.catch_up())) == [
        ("insert", "sync", {"id": 3, "name": "three", "price": 3.00}),
        ("update", "sync", {"id": 1, "name": None, "price": 1.50}),
        ("delete", "sync", {"id": 2}),
        ("command", "sync", {"truncate": True}),
    ]
    assert rig.catch_up() == []


def test_a_record_says_what_a_mirror_needs(rig: Rig) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1, 'one', 1.50)")
    (copied, complete) = rig.catch_up()
    rig.ask("UPDATE items SET price = 2.50")
    (changed,) = rig.catch_up()
    for record in (copied, changed):
        assert record.key == '{"id":1}'
        assert not {"unchanged", "old_key"} & record.headers.keys()
    for record in (copied, complete, changed):
        assert record.namespace == "public.items"
        assert record.headers["columns"] == '{"id":"integer","name":"text","price":"numeric(8,2)"}'
        assert record.headers["key"] == '["id"]'
    assert changed.data == b'{"id":1,"name":"one","price":2.50}'
    assert json.loads(changed.headers[Header.POSITION])["number"] == 0


def test_a_value_that_is_stored_apart_and_not_touched_is_named_as_unchanged(rig: Rig) -> None:
    rig.ask(LARGE, f"INSERT INTO large VALUES (1, 'a', {BIG}), (2, 'b', {BIG})")
    rig.catch_up()
    rig.ask("UPDATE large SET small = 'c' WHERE id = 1", "UPDATE large SET big = 'short' WHERE id = 2")
    apart, touched = rig.catch_up()
    assert json.loads(apart.data or b"") == {"id": 1, "small": "c"}
    assert apart.headers["unchanged"] == '["big"]'
    assert "unchanged" not in touched.headers
    assert rig.is_mirrored("public.large")


def test_with_full_identity_nothing_is_left_out(rig: Rig) -> None:
    rig.ask(LARGE, "ALTER TABLE large REPLICA IDENTITY FULL", f"INSERT INTO large VALUES (1, 'a', {BIG})")
    rig.catch_up()
    rig.ask("UPDATE large SET small = 'c'", "UPDATE large SET id = 9", "DELETE FROM large")
    kept, moved, deleted = rig.catch_up()
    assert json.loads(kept.data or b"").keys() == {"id", "small", "big"}
    assert kept.key == '{"id":1}'
    assert not {"unchanged", "old_key"} & kept.headers.keys()
    assert moved.headers["old_key"] == '{"id":1}'
    assert json.loads(deleted.data or b"").keys() == {"id", "small", "big"}
    assert deleted.key == '{"id":9}'


def test_a_changed_key_says_what_it_was(rig: Rig) -> None:
    rig.ask(
        "CREATE TABLE pairs (a int, v text, b text, PRIMARY KEY (b, a))",
        "INSERT INTO pairs VALUES (1, 'x', 'k'), (2, 'y', E'quo\"te\\n')",
    )
    rig.catch_up()
    rig.ask(
        "UPDATE pairs SET a = 3 WHERE a = 1", "UPDATE pairs SET v = 'z' WHERE a = 2", "DELETE FROM pairs WHERE a = 2"
    )
    moved, same, deleted = rig.catch_up()
    assert moved.key == '{"b":"k","a":3}'
    assert moved.headers["old_key"] == '{"b":"k","a":1}'
    assert moved.headers["key"] == '["b","a"]'
    assert "old_key" not in same.headers
    assert same.key == deleted.key == '{"b":"quo\\"te\\n","a":2}'
    assert json.loads(deleted.data or b"") == {"a": 2, "b": 'quo"te\n'}
    assert rig.is_mirrored("public.pairs")


def test_rows_without_a_key_are_named_by_all_they_have(rig: Rig) -> None:
    rig.ask(
        "CREATE TABLE bag (a int, b text)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO bag VALUES (1, 'x'), (1, 'x'), (2, NULL)",
    )
    rig.catch_up()
    rig.ask(
        "UPDATE bag SET b = 'y' WHERE ctid = (SELECT min(ctid) FROM bag)",
        "DELETE FROM bag WHERE a = 2",
    )
    updated, deleted = rig.catch_up()
    assert updated.key is None
    assert "key" not in updated.headers
    assert json.loads(updated.headers["old_key"]) == {"a": 1, "b": "x"}
    assert json.loads(deleted.data or b"") == {"a": 2, "b": None}
    assert rig.is_mirrored("public.bag")


def test_another_index_can_be_the_identity(rig: Rig) -> None:
    rig.ask(
        "CREATE TABLE coded (id int PRIMARY KEY, code text NOT NULL)",
        "CREATE UNIQUE INDEX by_code ON coded (code)",
        "ALTER TABLE coded REPLICA IDENTITY USING INDEX by_code",
        "INSERT INTO coded VALUES (1, 'a')",
    )
    copied, _ = rig.catch_up()
    rig.ask("UPDATE coded SET code = 'b'", "DELETE FROM coded")
    updated, deleted = rig.catch_up()
    assert copied.key == '{"code":"a"}'
    assert (updated.key, updated.headers["old_key"]) == ('{"code":"b"}', '{"code":"a"}')
    assert json.loads(deleted.data or b"") == {"code": "b"}


def test_a_truncate_of_several_tables_is_a_command_for_each(rig: Rig) -> None:
    rig.ask(
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY REFERENCES a)",
        "INSERT INTO a VALUES (1)",
        "INSERT INTO b VALUES (1)",
    )
    rig.catch_up()
    rig.ask("TRUNCATE a CASCADE", "INSERT INTO a VALUES (2)")
    found = rig.catch_up()
    assert {r.namespace for r in found if r.op is Op.COMMAND} == {"public.a", "public.b"}
    assert rig.is_mirrored("public.a", "public.b")


def test_changes_of_one_transaction_are_numbered_and_nothing_that_was_rolled_back_comes(rig: Rig) -> None:
    rig.ask(ITEMS, "CREATE TABLE notes (id int PRIMARY KEY)")
    rig.catch_up()
    rig.ask(
        "BEGIN", "INSERT INTO items VALUES (1)", "INSERT INTO notes VALUES (1)", "SAVEPOINT s",
        "INSERT INTO items VALUES (2)", "ROLLBACK TO s", "INSERT INTO items VALUES (3)", "COMMIT",
        "BEGIN", "INSERT INTO items VALUES (4)", "ROLLBACK",
    )  # fmt: skip
    found = rig.catch_up()
    assert [(r.namespace, json.loads(r.data or b"")["id"]) for r in found] == [
        ("public.items", 1), ("public.notes", 1), ("public.items", 3),
    ]  # fmt: skip
    places = [json.loads(r.headers[Header.POSITION]) for r in found]
    assert [place["number"] for place in places] == [0, 1, 2]
    assert len({place["commit"] for place in places}) == 1


def test_a_transaction_larger_than_every_buffer_arrives_whole(rig: Rig) -> None:
    rig.ask(ITEMS)
    rig.catch_up()
    rig.ask("INSERT INTO items SELECT i, repeat('x', 100), i % 100 FROM generate_series(1, 60000) i")
    found = rig.catch_up()
    assert [row["id"] for row in rows_of(found)] == list(range(1, 60_001))
    assert [json.loads(r.headers[Header.POSITION])["number"] for r in found] == list(range(60_000))


def test_only_the_tables_that_are_meant_are_followed(rig: Rig) -> None:
    rig.ask(
        "CREATE SCHEMA other",
        "CREATE TABLE other.items (id int PRIMARY KEY)",
        "CREATE TABLE items (id int PRIMARY KEY)",
        "CREATE TABLE audit_log (id int)",
        "INSERT INTO items VALUES (1)",
        "INSERT INTO other.items VALUES (1)",
        "INSERT INTO audit_log VALUES (1)",
    )
    patterns = ["*.*", "!public.audit_*", "!other.*"]
    rig.catch_up(tables=patterns)
    rig.ask("INSERT INTO items VALUES (2)", "INSERT INTO other.items VALUES (2)", "UPDATE audit_log SET id = 2")
    rig.catch_up(tables=patterns)
    assert {r.namespace for r in rig.records()} == {"public.items"}
    assert [row["id"] for row in rows_of(rig.records())] == [1, 2]


def test_a_publication_of_all_tables_that_is_there_is_used_as_it_is(rig: Rig) -> None:
    rig.ask(
        "CREATE TABLE items (id int PRIMARY KEY)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        "CREATE PUBLICATION mine FOR ALL TABLES",
    )
    options = {"tables": "public.items", "publication": "mine"}
    rig.catch_up(**options)
    rig.ask("INSERT INTO others VALUES (1)", "INSERT INTO items VALUES (1)", "TRUNCATE items, others")
    assert [(op, row) for op, _, row in told(rig.catch_up(**options))] == [
        ("insert", {"id": 1}), ("command", {"truncate": True}),
    ]  # fmt: skip


def test_filters_and_column_lists_of_a_publication_hold_for_the_copy_too(rig: Rig) -> None:
    rig.ask(
        "CREATE TABLE items (id int PRIMARY KEY, secret text, shown text)",
        "INSERT INTO items SELECT i, 'no', 'yes' FROM generate_series(1, 10) i",
        "CREATE PUBLICATION mine FOR TABLE items (id, shown) WHERE (id > 8)",
    )
    rig.catch_up(publication="mine")
    rig.ask("INSERT INTO items VALUES (11, 'no', 'yes')", "INSERT INTO items VALUES (0, 'no', 'yes')")
    rig.catch_up(publication="mine")
    assert rows_of(rig.records()) == [{"id": i, "shown": "yes"} for i in (9, 10, 11)]


def test_a_partitioned_table_is_one_table(rig: Rig) -> None:
    rig.ask(
        "CREATE TABLE sales (day int, id int, PRIMARY KEY (day, id)) PARTITION BY RANGE (day)",
        "CREATE TABLE sales_1 PARTITION OF sales FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE sales_2 (id int NOT NULL, day int NOT NULL)",
        "ALTER TABLE sales ATTACH PARTITION sales_2 FOR VALUES FROM (10) TO (20)",
        "INSERT INTO sales VALUES (1, 1), (11, 2)",
    )
    rig.catch_up()
    rig.ask(
        "INSERT INTO sales VALUES (12, 3)",
        "CREATE TABLE sales_3 PARTITION OF sales FOR VALUES FROM (20) TO (30)",
        "INSERT INTO sales VALUES (21, 4)",
        "DELETE FROM sales WHERE day = 1",
        "UPDATE sales SET day = 2 WHERE day = 11",
    )
    rig.catch_up()
    assert {r.namespace for r in rig.records()} == {"public.sales"}
    assert rig.is_mirrored("public.sales")


def test_a_partitioned_table_may_begin_without_partitions(rig: Rig) -> None:
    rig.ask("CREATE TABLE sales (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    assert list(told(rig.catch_up())) == [("noop", "complete", {"rows": 0})]
    rig.ask("CREATE TABLE sales_1 PARTITION OF sales FOR VALUES FROM (0) TO (10)", "INSERT INTO sales VALUES (1)")
    rig.catch_up()
    assert rig.is_mirrored("public.sales")


def test_without_a_copy_only_changes_come(rig: Rig) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1)")
    assert rig.catch_up(copy=False) == []
    rig.ask("INSERT INTO items VALUES (2)", "CREATE TABLE later (id int PRIMARY KEY)")
    assert [row["id"] for row in rows_of(rig.catch_up(copy=False))] == [2]
    rig.ask("INSERT INTO later VALUES (7)")
    assert [row["id"] for row in rows_of(rig.catch_up(copy=False))] == [7]


@pytest.mark.parametrize("workers", [1, 4])
def test_a_table_of_many_ranges_is_copied_whole(rig: Rig, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sources.postgres.copy.page_range.RANGE_PAGES", 16)
    rig.ask(
        "CREATE TABLE many (id int PRIMARY KEY, filler text)",
        "INSERT INTO many SELECT i, repeat('x', 200) FROM generate_series(1, 5000) i",
        "DELETE FROM many WHERE id % 7 = 0",
        "UPDATE many SET filler = 'y' WHERE id % 5 = 0",
    )
    rig.catch_up(workers=workers)
    assert rig.is_mirrored("public.many")
