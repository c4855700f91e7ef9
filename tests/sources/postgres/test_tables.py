"""Tables change, come and go while they are followed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import psycopg
import pytest

from penstock.errors import PenstockError
from penstock.record import Mode, Op
from penstock.testing.source import log_records
from penstock.testing.waiting import HANG, eventually
from tests.sources.postgres.rig import Rig, rows_of, told

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text)"


@contextmanager
def following(rig: Rig, **changed: object) -> Iterator[None]:
    """The source in a thread."""
    stopping, source = Event(), rig.source(**changed)
    problems: list[BaseException] = []

    def run() -> None:
        try:
            source.run(stopping)
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(HANG)
    assert not problems


def test_the_shape_of_a_table_is_followed(rig: Rig) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    rig.catch_up()
    rig.ask(
        "INSERT INTO items VALUES (2, 'b')",
        "ALTER TABLE items ADD COLUMN price numeric(6,2)",
        "INSERT INTO items VALUES (3, 'c', 1.5)",
        "ALTER TABLE items DROP COLUMN name",
        "INSERT INTO items VALUES (4, 2.5)",
        "ALTER TABLE items ALTER COLUMN price TYPE numeric(9,2)",
        "INSERT INTO items VALUES (5, 1234567.5)",
    )
    found = rig.catch_up()
    assert [json.loads(r.headers["columns"]) for r in found] == [
        {"id": "integer", "name": "text"},
        {"id": "integer", "name": "text", "price": "numeric(6,2)"},
        {"id": "integer", "price": "numeric(6,2)"},
        {"id": "integer", "price": "numeric(9,2)"},
    ]
    assert rows_of(found) == [
        {"id": 2, "name": "b"},
        {"id": 3, "name": "c", "price": 1.5},
        {"id": 4, "price": 2.5},
        {"id": 5, "price": 1234567.5},
    ]


def test_a_copy_says_whether_the_log_had_anything_of_the_table_before(rig: Rig) -> None:
    rig.ask(ITEMS)
    rig.catch_up()
    rig.catch_up(slot="again")
    rig.ask("SELECT pg_drop_replication_slot('again')")
    found = log_records(rig.folder / "log")
    assert [(str(r.mode), json.loads(r.data or b"")) for r in found] == [
        ("copy", {"truncate": True, "first": True}),
        ("complete", {"rows": 0}),
        ("copy", {"truncate": True}),
        ("complete", {"rows": 0}),
    ]


def test_a_key_that_changes_is_followed(rig: Rig) -> None:
    rig.ask("CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL)", "INSERT INTO t VALUES (1, 2)")
    rig.catch_up()
    rig.ask(
        "UPDATE t SET b = 3",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (b, a)",
        "UPDATE t SET a = 5",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "UPDATE t SET a = 6",
    )
    before, between, after = rig.catch_up()
    assert before.key == '{"a":1}'
    assert (between.key, between.headers["key"]) == ('{"b":3,"a":5}', '["b","a"]')
    assert (after.key, after.headers["old_key"]) == ('{"b":3,"a":6}', '{"b":3,"a":5}')


@pytest.mark.parametrize(
    "change",
    [
        ["ALTER TABLE t RENAME COLUMN id TO ident", "UPDATE t SET n = 2 WHERE ident = 1"],
        ["ALTER TABLE t DROP COLUMN id, ADD COLUMN ident serial PRIMARY KEY", "UPDATE t SET n = 2 WHERE ident = 1"],
    ],
)
def test_rows_are_copied_again_when_they_get_a_key_that_they_did_not_have(rig: Rig, change: list[str]) -> None:
    rig.ask(
        "CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t SELECT i, 0 FROM generate_series(1, 9) i", ITEMS
    )
    rig.catch_up()
    one_transaction = "; ".join(
        [
            "BEGIN",
            "UPDATE t SET n = 1 WHERE n = 0",
            *change,
            "DELETE FROM t WHERE ident = 3",
            "INSERT INTO items VALUES (1)",
            "COMMIT",
        ]
    )
    rig.ask(one_transaction, "INSERT INTO items VALUES (2)")
    found = [r for r in rig.catch_up() if r.namespace == "public.t"]
    assert rig.is_mirrored("public.t", "public.items")
    began = next(number for number, r in enumerate(found) if r.op is Op.COMMAND)
    assert {r.headers.get("key") for r in found[:began]} == {'["id"]', None}
    assert {r.headers["key"] for r in found[began:]} == {'["ident"]'}
    rig.ask("UPDATE t SET ident = 10 WHERE ident = 9")
    assert [(str(r.op), r.key) for r in rig.catch_up()] == [("update", '{"ident":10}')]
    assert rig.is_mirrored("public.t", "public.items")


@pytest.mark.parametrize(
    "alter",
    [
        "ADD COLUMN c int NOT NULL DEFAULT 5",
        "RENAME COLUMN b TO c",
        "ALTER COLUMN b TYPE text USING 'x' || b",
        "ALTER COLUMN b TYPE numeric(9,3)",
        "DROP COLUMN b, ADD COLUMN c int",
        "DROP COLUMN b",
    ],
)
def test_rows_without_a_key_are_found_by_changes_after_the_table_got_another_shape(rig: Rig, alter: str) -> None:
    rig.ask(
        "CREATE TABLE bag (a int, b int)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO bag SELECT i, i FROM generate_series(1, 6) i",
        ITEMS,
    )
    rig.catch_up()
    rig.ask("DELETE FROM bag WHERE a = 6", f"ALTER TABLE bag {alter}", "DELETE FROM bag WHERE a = 1")
    rig.ask("UPDATE bag SET a = 20 WHERE a = 2", "INSERT INTO bag (a) VALUES (30)", "INSERT INTO items VALUES (1)")
    found = rig.catch_up()
    assert any(r.op is Op.COMMAND for r in found) == (alter != "DROP COLUMN b")
    if alter != "DROP COLUMN b":
        assert rig.is_mirrored("public.bag", "public.items")
    rig.ask("DELETE FROM bag WHERE a = 3")
    assert [str(r.op) for r in rig.catch_up()] == ["delete"]


def test_a_column_that_is_made_again_under_its_name_does_not_keep_its_old_values(rig: Rig) -> None:
    rig.ask("CREATE TABLE t (id int PRIMARY KEY, a int, b text)", "INSERT INTO t VALUES (1, 1, 'one'), (2, 2, 'two')")
    rig.catch_up()
    rig.ask("ALTER TABLE t DROP COLUMN b", "ALTER TABLE t ADD COLUMN b text", "UPDATE t SET a = 9 WHERE id = 1")
    rig.catch_up()
    assert rig.is_mirrored("public.t")
    rig.ask("UPDATE t SET b = 'new' WHERE id = 2")
    assert [str(r.op) for r in rig.catch_up()] == ["update"]
    assert rig.is_mirrored("public.t")


LARGE = "(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 400) g)"
"""A value that PostgreSQL stores apart, and does not send again unless it changes."""


@pytest.mark.parametrize(
    "alter",
    [
        "RENAME COLUMN large TO big",
        "ALTER COLUMN large TYPE bytea USING large::bytea",
        "ALTER COLUMN n TYPE text USING 'x' || n",
        "ALTER COLUMN id TYPE text USING 'x' || id",
        "ALTER COLUMN id TYPE bigint USING id * 100",
        "ALTER COLUMN id TYPE numeric(9,2)",
        "DROP COLUMN late, ADD COLUMN late int",
    ],
)
def test_rows_are_those_of_the_source_after_their_columns_have_changed(rig: Rig, alter: str) -> None:
    rig.ask(
        "CREATE TABLE t (id int PRIMARY KEY, n int, row int, large text)",
        f"INSERT INTO t SELECT i, i, i, {LARGE} FROM generate_series(1, 6) i",
    )
    rig.catch_up()
    rig.ask("ALTER TABLE t ADD COLUMN late int", "UPDATE t SET late = n")
    assert {str(r.op) for r in rig.catch_up()} == {"update"}
    rig.ask(f"ALTER TABLE t {alter}", "UPDATE t SET late = 9 WHERE row = 1", "DELETE FROM t WHERE row = 2")
    assert any(r.op is Op.COMMAND for r in rig.catch_up())
    assert rig.is_mirrored("public.t")
    rig.ask("UPDATE t SET late = 7 WHERE row > 2")
    assert {str(r.op) for r in rig.catch_up()} == {"update"}
    assert rig.is_mirrored("public.t")


@pytest.mark.parametrize(
    "alter",
    [
        "ALTER COLUMN n TYPE bigint",
        "ALTER COLUMN short TYPE varchar(20)",
        "ALTER COLUMN short TYPE text",
        "ALTER COLUMN price TYPE numeric(12,2)",
        "ADD COLUMN more int",
        "DROP COLUMN n",
    ],
)
def test_a_column_that_comes_goes_or_gets_more_room_does_not_copy_its_table_again(rig: Rig, alter: str) -> None:
    rig.ask(
        "CREATE TABLE t (id int PRIMARY KEY, n int, short varchar(9), price numeric(8,2))",
        "INSERT INTO t VALUES (1, 1, 'a', 1.5), (2, 2, 'b', 2.5)",
    )
    rig.catch_up()
    rig.ask(f"ALTER TABLE t {alter}", "UPDATE t SET short = 'c' WHERE id = 1")
    assert [str(r.op) for r in rig.catch_up()] == ["update"]


def test_rows_whose_key_may_be_there_twice_for_a_moment_are_told_by_all_of_their_values(rig: Rig) -> None:
    rig.ask(
        "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, n int)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 10) i",
    )
    rig.catch_up()
    rig.ask("UPDATE t SET id = id + 1")
    assert {r.headers.get("key") for r in rig.catch_up()} == {None}
    assert rig.is_mirrored("public.t")


@pytest.mark.parametrize(
    "table",
    [
        ["CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, n int)"],
        [
            "CREATE TABLE t (id int, u int NOT NULL, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
            "CREATE TABLE leaf PARTITION OF t FOR VALUES FROM (1) TO (100)",
            "CREATE UNIQUE INDEX leaf_u ON leaf (u)",
            "ALTER TABLE leaf REPLICA IDENTITY USING INDEX leaf_u",
        ],
        [
            "CREATE TABLE t (id int, u int) PARTITION BY RANGE (id)",
            "CREATE TABLE leaf PARTITION OF t (PRIMARY KEY (id)) FOR VALUES FROM (1) TO (100)",
        ],
    ],
)
def test_a_table_whose_changes_would_not_say_which_row_they_are_about_is_not_published(
    rig: Rig, table: list[str]
) -> None:
    rig.ask(*table)
    with pytest.raises(PenstockError, match="PEN-PGS-004"):
        rig.catch_up()
    rig.ask(ITEMS, *(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in ("t", "leaf")[: min(len(table), 2)]))
    rig.ask("INSERT INTO t VALUES (1, 1), (2, 2)")
    rig.catch_up()
    rig.ask("UPDATE t SET id = id + 10", "DELETE FROM t WHERE id = 12")
    rig.catch_up()
    assert rig.is_mirrored("public.t")


@pytest.mark.parametrize("point", ["log.append.after_fsync", "log.append.after_fsync@2", "log.append.after_fsync@3"])
def test_killed_while_rows_get_another_key(rig: Rig, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.ask("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1), (2, 2)", ITEMS)
    rig.catch_up()
    rig.ask(
        "BEGIN; UPDATE t SET n = 3 WHERE id = 1; ALTER TABLE t RENAME COLUMN id TO ident;"
        "DELETE FROM t WHERE ident = 1; INSERT INTO items VALUES (1); COMMIT"
    )
    rig.run_until_killed(point, monkeypatch)
    rig.catch_up()
    assert rig.is_mirrored("public.t", "public.items")


def test_a_table_that_cannot_be_followed_yet_hinders_no_restart(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.ask(ITEMS)
    rig.catch_up()
    rig.ask("CREATE TABLE bare (id int)", "INSERT INTO items VALUES (1, 'a')")
    rig.catch_up()
    assert rig.is_mirrored("public.items")
    assert [r.getMessage() for r in caplog.records if "public.bare cannot be followed yet" in r.getMessage()] == [
        "public.bare cannot be followed yet: its rows have no identity, or those of a partition have another one; add a"
        ' primary key that is not deferrable, or ALTER TABLE "public"."bare" REPLICA IDENTITY FULL, and so for its'
        " partitions"
    ]
    rig.ask("ALTER TABLE bare ADD PRIMARY KEY (id)")
    rig.catch_up()
    assert rig.is_mirrored("public.items", "public.bare")


def test_a_type_that_is_gone_by_now_is_given_as_text(rig: Rig) -> None:
    rig.ask(ITEMS)
    rig.catch_up()
    rig.ask(
        "CREATE TYPE mood AS ENUM ('sad')",
        "ALTER TABLE items ADD COLUMN mood mood",
        "INSERT INTO items VALUES (1, 'a', 'sad')",
        "ALTER TABLE items DROP COLUMN mood",
        "DROP TYPE mood",
    )
    (found,) = rig.catch_up()
    assert json.loads(found.data or b"") == {"id": 1, "name": "a", "mood": "sad"}
    assert json.loads(found.headers["columns"])["mood"] == "text"


def test_a_new_table_is_copied_and_followed_without_a_restart(rig: Rig) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    with following(rig):
        eventually(lambda: any(r.mode is Mode.COMPLETE for r in rig.records()), "the copy")
        rig.ask(
            "CREATE TABLE fresh (id int PRIMARY KEY)",
            "INSERT INTO fresh VALUES (1)",
            "INSERT INTO items VALUES (2, 'b')",
        )
        eventually(lambda: rig.is_mirrored("public.fresh", "public.items"), "the new table")
        rig.ask("INSERT INTO fresh VALUES (2)", "DELETE FROM fresh WHERE id = 1", "UPDATE items SET name = 'c'")
        eventually(lambda: rig.is_mirrored("public.fresh", "public.items"), "its changes")
    assert [mode for _, mode, _ in told([r for r in rig.records() if r.namespace == "public.fresh"])] == [
        "copy", "complete", "sync", "sync",
    ]  # fmt: skip


def test_changes_of_a_new_table_before_its_copy_come_once(rig: Rig) -> None:
    """A publication of all tables streams what was done before the copy, too."""
    rig.ask(ITEMS, "CREATE PUBLICATION mine FOR ALL TABLES")
    rig.catch_up(publication="mine")
    rig.ask(
        "CREATE TABLE fresh (id int PRIMARY KEY, n int)",
        "INSERT INTO fresh SELECT i, 0 FROM generate_series(1, 100) i",
        "UPDATE fresh SET n = 1 WHERE id <= 50",
        "DELETE FROM fresh WHERE id = 1",
        "INSERT INTO items VALUES (1, 'a')",
    )
    rig.catch_up(publication="mine")
    assert rig.is_mirrored("public.fresh", "public.items")
    assert len([r for r in rig.records() if r.namespace == "public.fresh"]) == 100


def test_a_new_table_that_cannot_be_followed_waits_and_hinders_nobody(rig: Rig) -> None:
    rig.ask(ITEMS)
    with following(rig):
        eventually(lambda: len(rig.records()) == 1, "the copy")
        rig.ask("CREATE TABLE bare (id int)", "INSERT INTO bare VALUES (1)")
        rig.ask("INSERT INTO items VALUES (1, 'a')")
        eventually(lambda: rig.is_mirrored("public.items"), "the other table")
        rig.ask("UPDATE bare SET id = 2")  # must not fail: it is not published
        rig.ask("ALTER TABLE bare REPLICA IDENTITY FULL")
        eventually(lambda: rig.is_mirrored("public.bare"), "the table, now that it has an identity")


def test_a_table_made_anew_under_its_old_name_is_copied_anew(rig: Rig) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1, 'old')")
    rig.catch_up()
    rig.ask("DROP TABLE items", ITEMS, "INSERT INTO items VALUES (2, 'new')")
    assert list(told(rig.catch_up())) == [
        ("command", "copy", {"truncate": True}),
        ("insert", "copy", {"id": 2, "name": "new"}),
        ("noop", "complete", {"rows": 1}),
    ]
    rig.ask("INSERT INTO items VALUES (3, 'newer')")
    rig.catch_up()
    assert rig.is_mirrored("public.items")


def test_a_renamed_table_is_copied_under_its_new_name(rig: Rig) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    rig.catch_up()
    rig.ask(
        "INSERT INTO items VALUES (2, 'b')", "ALTER TABLE items RENAME TO goods", "INSERT INTO goods VALUES (3, 'c')"
    )
    rig.catch_up()
    rig.ask("INSERT INTO goods VALUES (4, 'd')")
    rig.catch_up()
    assert rig.is_mirrored("public.goods")


def test_two_tables_that_swap_their_names_are_copied_anew(rig: Rig) -> None:
    rig.ask(ITEMS, "CREATE TABLE next (LIKE items INCLUDING ALL)", "INSERT INTO items VALUES (1, 'a')")
    rig.catch_up()
    rig.ask(
        "INSERT INTO next VALUES (7, 'n')",
        "BEGIN", "ALTER TABLE items RENAME TO last", "ALTER TABLE next RENAME TO items", "COMMIT",
        "INSERT INTO items VALUES (8, 'o')",
    )  # fmt: skip
    rig.catch_up()
    assert rig.is_mirrored("public.items", "public.last")


def test_a_table_that_is_dropped_leaves_the_others_alone(rig: Rig) -> None:
    rig.ask(ITEMS, "CREATE TABLE gone (id int PRIMARY KEY)")
    rig.catch_up()
    rig.ask("INSERT INTO gone VALUES (1)", "DROP TABLE gone", "INSERT INTO items VALUES (1, 'a')")
    rig.catch_up()
    assert rig.is_mirrored("public.items")


def test_a_hundred_tables_are_copied_and_followed(rig: Rig) -> None:
    names = [f"public.t{n}" for n in range(100)]
    rig.ask(*(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in names))
    rig.ask(*(f"INSERT INTO {name} SELECT i, 'x' FROM generate_series(1, 20) i" for name in names))
    rig.catch_up()
    rig.ask(*(f"UPDATE {name} SET v = '{name}' WHERE id = 3" for name in names))
    rig.ask(*(f"DELETE FROM {name} WHERE id = 4" for name in names))
    rig.catch_up()
    assert rig.is_mirrored(*names)
    assert len([r for r in rig.records() if r.mode is Mode.COMPLETE]) == 100


@pytest.mark.parametrize(
    "rewrite",
    [
        "ALTER TABLE items ALTER COLUMN name TYPE int USING length(name)",
        "TRUNCATE items",
        "ALTER TABLE items RENAME COLUMN name TO title",
        "VACUUM FULL items",
        "DROP TABLE items",
    ],
)
def test_a_table_that_is_written_anew_after_the_snapshot_is_copied_with_another(
    rig: Rig, rewrite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows cannot be seen in the older snapshot any more; a copy of nothing would be a silent loss."""
    from penstock.sources.postgres import replication_session

    rig.ask(
        ITEMS,
        "INSERT INTO items SELECT i, 'n' FROM generate_series(1, 50) i",
        "CREATE TABLE other (id int PRIMARY KEY)",
    )
    plan = replication_session.Session._plan
    rewritten: list[str] = []

    def rewriting(self: replication_session.Session, *arguments: object) -> object:
        found = plan(self, *arguments)  # type: ignore[arg-type]
        if not rewritten:
            rewritten.append(rewrite)
            rig.ask(rewrite)
        return found

    monkeypatch.setattr(replication_session.Session, "_plan", rewriting)
    rig.catch_up()
    assert rewritten
    tables = ["public.other"] if "DROP" in rewrite else ["public.items", "public.other"]
    assert rig.is_mirrored(*tables)


def test_a_column_that_is_added_during_the_copy_does_not_harm_it(rig: Rig) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    rig.catch_up()
    rig.ask("ALTER TABLE items ADD COLUMN c int DEFAULT 7", "INSERT INTO items VALUES (2, 'b')")
    (found,) = rig.catch_up()
    assert found.op is Op.INSERT
    assert json.loads(found.data or b"") == {"id": 2, "name": "b", "c": 7}


def test_a_long_transaction_is_waited_for_and_a_stop_meanwhile_is_heard(rig: Rig) -> None:
    """A slot begins when the transactions that were under way have ended."""
    rig.ask(ITEMS)
    with psycopg.connect(rig.url) as other:
        other.execute("INSERT INTO items VALUES (1, 'a')")
        with following(rig):
            waiting = "SELECT 1 FROM pg_stat_activity WHERE backend_type = 'walsender' AND datname = current_database()"
            eventually(lambda: rig.ask(waiting), "a slot on its way")
        assert rig.records() == []
        other.commit()
    rig.catch_up()
    assert rig.is_mirrored("public.items")


def test_a_slot_that_ends_with_whom_it_was_being_created_for_is_created_again(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits any more for what the server creates, and somebody who starts again finds it there for now."""
    rig.ask(ITEMS)
    walsenders = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walsender' AND datname = current_database()"
    with psycopg.connect(rig.url) as other:
        other.execute("INSERT INTO items VALUES (1, 'a')")
        with following(rig):
            eventually(lambda: rig.ask("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'penstock'"), "a slot")
            ((abandoned,),) = rig.ask(walsenders)
        with following(rig):
            eventually(lambda: f"in use by process {abandoned}" in caplog.text, "somebody who waits for the slot")
            rig.ask(f"SELECT pg_terminate_backend({abandoned})")
            other.commit()
            eventually(lambda: rig.is_mirrored("public.items"), "the table")


def test_a_table_that_was_left_out_for_a_while_is_copied_again(rig: Rig) -> None:
    """Its changes were missed meanwhile; to go on as if nothing had been would be a silent gap."""
    rig.ask(ITEMS, "CREATE TABLE other (id int PRIMARY KEY)", "INSERT INTO items VALUES (1, 'a')")
    rig.catch_up()
    rig.ask("INSERT INTO items VALUES (2, 'b')", "DELETE FROM items WHERE id = 1")
    (left,) = rig.catch_up(tables=["public.*", "!public.items"])
    assert (left.namespace, left.op, left.data) == ("public.items", Op.NOOP, b'{"left":true}')
    assert rig.catch_up(tables=["public.*", "!public.items"]) == []
    (rig.folder / "state" / "positions.json").unlink()  # the log alone knows it, too
    rig.ask("INSERT INTO items VALUES (3, 'c')")
    rig.catch_up()
    assert rig.is_mirrored("public.items")


def test_a_table_that_somebody_took_out_of_the_publication_is_copied_again(rig: Rig) -> None:
    rig.ask(ITEMS, "CREATE TABLE other (id int PRIMARY KEY)", "INSERT INTO items VALUES (1, 'a')")
    with following(rig):
        eventually(lambda: rig.completed() == {"public.items", "public.other"}, "the copy")
        rig.ask(
            "ALTER PUBLICATION penstock DROP TABLE items",
            "INSERT INTO items VALUES (2, 'b')",
            "DELETE FROM items WHERE id = 1",
        )
        eventually(lambda: rig.is_mirrored("public.items"), "the table, as it is now")
        rig.ask("INSERT INTO items VALUES (3, 'c')")
        eventually(lambda: rig.is_mirrored("public.items"), "its changes")


OUT_AND_IN = [
    "ALTER PUBLICATION penstock DROP TABLE items",
    "INSERT INTO items VALUES (2, 'b')",
    "DELETE FROM items WHERE id = 1",
    "ALTER PUBLICATION penstock ADD TABLE items",
    "INSERT INTO items VALUES (3, 'c')",
]


def test_a_table_that_was_out_of_the_publication_before_we_looked_is_copied_again(rig: Rig) -> None:
    rig.ask(ITEMS, "CREATE TABLE other (id int PRIMARY KEY)", "INSERT INTO items VALUES (1, 'a')")
    rig.catch_up()
    rig.ask(*OUT_AND_IN)
    assert {r.namespace for r in rig.catch_up()} == {"public.items"}
    assert rig.is_mirrored("public.items")
    assert rig.catch_up() == []


def test_a_table_that_is_out_of_the_publication_between_two_looks_is_copied_again(rig: Rig) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    with following(rig, discover="2s"):
        eventually(lambda: rig.completed() == {"public.items"}, "the copy")
        rig.ask(*OUT_AND_IN)
        eventually(lambda: rig.is_mirrored("public.items"), "the table, as it is now")


@pytest.mark.parametrize(
    ("made", "meanwhile", "back"),
    [
        ("FOR ALL TABLES", ["DROP PUBLICATION mine"], "CREATE PUBLICATION mine FOR ALL TABLES"),
        ("FOR TABLES IN SCHEMA public", ["ALTER PUBLICATION mine DROP TABLES IN SCHEMA public"],
         "ALTER PUBLICATION mine ADD TABLES IN SCHEMA public"),
        ("FOR TABLE items", ["ALTER PUBLICATION mine SET TABLE items WHERE (id > 5)"],
         "ALTER PUBLICATION mine SET TABLE items"),
        ("FOR TABLE items", ["ALTER PUBLICATION mine SET (publish = 'truncate')"],
         "ALTER PUBLICATION mine SET (publish = 'insert, update, delete, truncate')"),
    ],
    ids=["all tables", "schema", "filter", "kinds"],
)  # fmt: skip
def test_a_publication_of_ones_own_that_left_changes_out_for_a_while(
    rig: Rig, made: str, meanwhile: list[str], back: str
) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1, 'a')", f"CREATE PUBLICATION mine {made}")
    rig.catch_up(publication="mine")
    rig.ask(*meanwhile, "INSERT INTO items VALUES (2, 'b')", "DELETE FROM items WHERE id = 1", back)
    rig.ask("INSERT INTO items VALUES (3, 'c')")
    rig.catch_up(publication="mine")
    assert rig.is_mirrored("public.items")
    assert rig.catch_up(publication="mine") == []


def test_a_progress_file_that_does_not_say_what_published_a_table_copies_nothing_again(rig: Rig) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    rig.catch_up()
    summary = rig.folder / "state" / "positions.json"
    content = json.loads(summary.read_text())
    for table in content["tables"].values():
        del table["membership"]
    summary.write_text(json.dumps(content))
    assert rig.catch_up() == []
    rig.ask(*OUT_AND_IN)
    rig.catch_up()
    assert rig.is_mirrored("public.items")


def test_a_publication_that_leaves_changes_out_by_now_is_said(rig: Rig) -> None:
    rig.ask(ITEMS)
    rig.catch_up()
    rig.ask("ALTER PUBLICATION penstock SET (publish = 'insert')")
    with pytest.raises(PenstockError) as caught:
        rig.catch_up()
    assert caught.value.code == "PEN-PGS-009"


@pytest.mark.parametrize("point", ["log.append.after_fsync", "log.append.after_fsync@2", "postgres.copy.whole"])
def test_killed_before_a_table_that_missed_changes_is_copied_again(
    rig: Rig, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    rig.catch_up()
    rig.ask("ALTER PUBLICATION penstock DROP TABLE items", "INSERT INTO items VALUES (2, 'b')")
    rig.run_until_killed(point, monkeypatch)
    rig.catch_up()
    assert rig.is_mirrored("public.items")


def test_a_table_that_somebody_has_locked_is_waited_for_and_a_stop_meanwhile_is_heard(rig: Rig) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    rig.catch_up()
    rig.ask("CREATE TABLE held (id int PRIMARY KEY)", "INSERT INTO held VALUES (1)")
    with psycopg.connect(rig.url) as other, following(rig):
        other.execute("LOCK TABLE held")
        stuck = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'held'::regclass"
        eventually(lambda: rig.ask(stuck), "somebody who waits for the lock")
    assert rig.completed() == {"public.items"}
    rig.catch_up()
    assert rig.is_mirrored("public.held")
