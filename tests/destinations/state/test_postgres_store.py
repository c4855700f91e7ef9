"""State in a PostgreSQL database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from penstock.conflation.version import Version
from penstock.destinations.state.store.contract import OnInactive, RestsOn, RowsChanged, StateChange, StateStore
from penstock.destinations.state.store.places import PostgresPlace, open_store
from penstock.errors import RefusedError, TableRefusedError, TransientError
from tests.destinations.state.joined_contract import (
    JoinedContract,
    check_together_as_alone,
    joined,
    together_and_alone,
    write_together,
)
from tests.destinations.state.store_contract import Row, StoreContract, Target, change, hybrid, known, row
from tests.support.database import Database
from tests.support.ports import free_port
from tests.support.postgres import Server


@dataclass(frozen=True)
class Schema(Target):
    database: Database

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self.database.ask(query)


@pytest.fixture
def target(database: Database) -> Target:
    database.ask(f'CREATE SCHEMA "{database.schema}"')
    return Schema(PostgresPlace(database.dsn, database.schema), database)


class TestPostgresStore(StoreContract, JoinedContract):
    def test_a_null_character_is_left_out_of_text_and_refused_in_a_key(self, target: Target) -> None:
        target.write(change([row("a", "c\0d")]))
        assert target.rows() == [("hub1", "a", "cd")]
        with pytest.raises(RefusedError, match=r"U\+0000"):
            target.write(change([row("a\0b")], "0.2"))
        with pytest.raises(RefusedError):
            target.write(change([row("a")], source="hub\0"))


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def write_with_a_new_connection(store: StateStore) -> None:
    with store.session(), store.session() as session:
        session.write(change([row(2)], "0.2"))


@pytest.mark.parametrize("write", [write_with_a_new_connection, lambda store: store.note_positions("r", {0: 9})])
def test_nothing_is_written_to_another_server_than_the_one_that_was_asked(write: Callable[[StateStore], None]) -> None:
    server = Server()
    server.start()
    try:
        with open_store(PostgresPlace(server.url), 2) as store:
            with store.session() as session:
                session.write(change([row(1)], route="r", positions={0: 5}))
            server.stop()
            server.start()
            with pytest.raises(TransientError, match="terminating connection"):
                store.positions("r")
            with pytest.raises(TransientError, match="was started again, or another one has taken over"):
                write(store)
        with open_store(PostgresPlace(server.url), 2) as store:
            assert store.positions("r") == {0: 5}
            with store.session() as session:
                session.write(change([row(2)], "0.2"))
    finally:
        server.stop()
        server.remove()


def waiting_for_locks(target: Target) -> int:
    ((count,),) = target.ask(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'penstock'"
    )
    return int(count)


@pytest.mark.parametrize("rows", [10, 2_000], ids=["few rows", "many rows"])
def test_a_connection_that_dies_within_a_transaction_leaves_nothing(target: Target, rows: int) -> None:
    target.write(change([row(number) for number in range(rows)], "0.1", route="r", positions={0: 1}))
    target.ask(
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;"
        "CREATE TRIGGER die AFTER UPDATE ON clusters FOR EACH STATEMENT EXECUTE FUNCTION die()"
    )
    newer = change([row(number, "new") for number in range(rows)], "0.2", route="r", positions={0: 2})
    with target.open() as store:
        with pytest.raises(TransientError), store.session() as session:
            session.write(newer)
        assert store.known(["hub1"]).processed["hub1", "clusters"].version == Version(0, 1)
        assert store.positions("r") == {0: 1}
        target.ask("DROP TRIGGER die ON clusters")
        with store.session() as session:
            assert session.write(newer).updated == rows


def test_connections_that_the_server_closed_are_made_again(target: Target) -> None:
    with target.open() as store:
        with store.session() as session:
            session.write(change([row(1)], "0.1"))
        store.known(["hub1"])
        target.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'penstock' AND pid <> pg_backend_pid()"
        )
        for use in (lambda: store.known(["hub1"]), lambda: write_one(store)):
            with pytest.raises(TransientError):
                use()
            use()


def write_one(store: Any) -> RowsChanged:
    with store.session() as session:
        done: RowsChanged = session.write(change([row(1)], "0.2"))
        return done


def test_a_server_that_is_not_there_is_a_passing_trouble() -> None:
    place = PostgresPlace(f"postgresql://nobody:secret@127.0.0.1:{free_port()}/none", connect_timeout=1)
    with pytest.raises(TransientError) as error, open_store(place):
        pass
    assert "secret" not in str(error.value)


def test_a_writer_in_another_process_is_waited_for_and_its_newer_version_stays(target: Target) -> None:
    target.write(change([row(1)], "0.1"))
    with psycopg.connect(target.place.url) as other, target.open() as store, ThreadPoolExecutor(1) as pool:  # type: ignore[union-attr]
        schema = target.place.database_schema  # type: ignore[union-attr]
        other.execute(f'UPDATE "{schema}".penstock_versions SET generation = 9'.encode())
        done = pool.submit(write_one, store)
        wait_for(lambda: waiting_for_locks(target))
        other.commit()
        assert done.result(30).already
    assert target.rows("name") == [("a",)]


def test_what_a_change_rests_on_stays_until_it_is_written(target: Target) -> None:
    target.write(change([row(1)], "0.1", kind="policies", table="policies"))
    resting = change([row(1)], rests_on=RestsOn("policies", Version(0, 1)))
    with psycopg.connect(target.place.url) as other, target.open() as store, ThreadPoolExecutor(1) as pool:  # type: ignore[union-attr]
        schema = target.place.database_schema  # type: ignore[union-attr]
        other.execute(f"UPDATE \"{schema}\".penstock_versions SET generation = 2 WHERE kind = 'policies'".encode())

        def write() -> RowsChanged:
            with store.session() as session:
                return session.write(resting)

        done = pool.submit(write)
        wait_for(lambda: waiting_for_locks(target))
        other.commit()
        with pytest.raises(TransientError, match="changed meanwhile"):
            done.result(30)
    assert known(target) == {("hub1", "policies"): Version(0, 2)}


def test_a_table_that_somebody_has_locked_is_tried_later(target: Target) -> None:
    target.write(change([row(1)], "0.1"))
    place = replace(target.place, lock_timeout=0.05)  # type: ignore[type-var]
    with psycopg.connect(target.place.url) as other, open_store(place) as store:  # type: ignore[union-attr]
        schema = target.place.database_schema  # type: ignore[union-attr]
        other.execute(f'LOCK TABLE "{schema}".clusters IN ACCESS EXCLUSIVE MODE'.encode())
        with pytest.raises(TransientError), store.session() as session:
            session.write(change([row(1, "new")], "0.2"))
        other.rollback()
        assert write_one(store).changed == 0


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@together_and_alone
def test_what_is_written_together_ends_as_alone(target: Target, bundles: list[list[list[Row]]]) -> None:
    check_together_as_alone(target, bundles)


def test_changes_together_do_not_wait_long_for_one_of_them(target: Target) -> None:
    write_together(target, joined({"hub1": [row(1)], "hub2": [row(1)]}))
    newer = joined({"hub1": [row(1, "new")], "hub2": [row(1, "new")]}, "0.2")
    with psycopg.connect(target.place.url) as other, target.open() as store:  # type: ignore[union-attr]
        schema = target.place.database_schema  # type: ignore[union-attr]
        other.execute(f"UPDATE \"{schema}\".clusters SET name = 'x' WHERE source = 'hub2'".encode())
        with store.session() as session:
            with pytest.raises(TransientError, match="statement timeout"):
                session.write_together(newer, 0.05)
            assert session.write(newer[0]).updated == 1, "the limit was that transaction's"
        other.rollback()
        assert target.rows("source, name") == [("hub1", "new"), ("hub2", "a")]


def test_writers_who_need_other_columns_at_once_all_get_them(target: Target) -> None:
    begin = threading.Barrier(6)

    def write(number: int) -> RowsChanged:
        begin.wait()
        with store.session() as session:
            items = [row(1, [1, 2.5, "x"][number % 3], **{f"c{number}": number, "shared": number})]
            return session.write(change(items, source=f"hub{number}"))

    with target.open(connections=6) as store, ThreadPoolExecutor(6) as pool:
        assert [done.inserted for done in pool.map(write, range(6))] == [1] * 6
    found = target.ask("SELECT source, name, c0, c5, shared FROM clusters ORDER BY source")
    assert found[0] == ("hub0", "1", 0, None, 0)
    assert found[5] == ("hub5", "x", None, 5, 5)


def test_a_reader_who_stays_long_delays_new_columns_and_nothing_else(target: Target) -> None:
    target.write(*(change([row(1)], source=f"hub{number}") for number in range(5)))

    def write(newer: StateChange) -> RowsChanged:
        with store.session() as session:
            return session.write(newer)

    with psycopg.connect(target.place.url) as reader, target.open(5) as store, ThreadPoolExecutor(5) as pool:  # type: ignore[union-attr]
        schema = target.place.database_schema  # type: ignore[union-attr]
        reader.execute(f'SELECT * FROM "{schema}".clusters'.encode())
        wider = [change([row(1, zone="b")], "0.2", source=f"hub{number}") for number in range(4)]
        with ExitStack() as connected:
            for _ in range(5):
                connected.enter_context(store.session())
        waits = [pool.submit(write, each) for each in wider]
        wait_for(lambda: waiting_for_locks(target) >= 3)
        for number in (2, 3):
            newer = change([row(1, f"v{number}")], f"0.{number}", source="hub4")
            assert pool.submit(write, newer).result(8).updated == 1
        assert not all(each.done() for each in waits), "it does not wait for one after the other"
        for each in waits:
            with pytest.raises(TransientError):
                each.result(8)
        reader.rollback()
        assert write(wider[0]).updated == 1


def test_a_source_that_has_just_come_with_many_rows_is_rewritten_fast(target: Target) -> None:
    """The database knows nothing of it yet: its statistics are those of many small sources."""
    write_together(target, joined({f"small{number}": [row(1)] for number in range(1_000)}))
    target.ask("ANALYZE clusters")
    target.write(change([row(number) for number in range(20_000)], source="large"))
    newer = change([row(number, "new") for number in range(20_000)], "0.2", source="large")
    with target.open() as store, store.session() as session:
        # A statement that goes through the new rows once for each old one takes longer than this.
        (done,) = session.write_together([newer], 5.0)
    assert done.updated == 20_000


BUNDLES = {
    "INSERT": [row(1), row(2), row(3)],
    "UPDATE": [row(1), row(2, "new")],
    "DELETE": [row(1)],
    "DELETE of all": [],
}
"""What must not count as written after ``[row(1), row(2)]``, by what the table ignores."""
PARTED = (
    "CREATE TABLE clusters (source text, id bigint, name text, PRIMARY KEY (source, id)) PARTITION BY LIST (source);"
    "CREATE TABLE part PARTITION OF clusters DEFAULT"
)


def trigger(operation: str, table: str = "clusters") -> str:
    return (
        "CREATE FUNCTION ignore() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
        f"CREATE TRIGGER ignore BEFORE {operation} ON {table} FOR EACH ROW EXECUTE FUNCTION ignore()"
    )


def trigger_of_partition(operation: str) -> str:
    return trigger(operation, "part")


def rule(operation: str) -> str:
    return f"CREATE RULE ignore AS ON {operation} TO clusters DO INSTEAD NOTHING"


def policy(operation: str) -> str:
    """Whoever owns the table sees all rows and may insert others, and changes none by the operation."""
    allowed = {each: str(each != operation).lower() for each in ("UPDATE", "DELETE")}
    return (
        "ALTER TABLE clusters ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;"
        "CREATE POLICY a ON clusters FOR SELECT USING (true); CREATE POLICY b ON clusters FOR INSERT WITH CHECK (true);"
        f"CREATE POLICY c ON clusters FOR UPDATE USING ({allowed['UPDATE']});"
        f"CREATE POLICY d ON clusters FOR DELETE USING ({allowed['DELETE']})"
    )


Guard = Callable[[str], str]
GUARDS: Sequence[Guard] = (trigger, trigger_of_partition, rule, policy)


@pytest.fixture
def owned(target: Target) -> Target:
    """A schema whose tables are made by somebody for whom policies count."""
    role, schema = f"writer_{target.place.database_schema}", target.place.database_schema  # type: ignore[union-attr]
    target.ask(f"CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA {schema} TO {role}")
    target.ask(f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT ALL ON TABLES TO {role}")
    url = make_conninfo(target.place.url, user=role)  # type: ignore[union-attr]
    return replace(target, place=replace(target.place, url=url))  # type: ignore[type-var]


def fill(target: Target, guard: Guard) -> list[tuple[Any, ...]]:
    """Two sources with two rows each, in a partition if the guard is about one. Returns what is to be there."""
    if guard is trigger_of_partition:
        target.ask(PARTED)
    write_together(target, joined({"hub1": [row(1), row(2)], "hub2": [row(1), row(2)]}))
    return target.rows()


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("operation", BUNDLES)
@pytest.mark.parametrize("guard", GUARDS)
def test_what_a_table_ignores_is_not_written(owned: Target, guard: Guard, operation: str, together: bool) -> None:
    before = fill(owned, guard)
    owned.ask(guard(operation.partition(" ")[0]))
    newer = joined({"hub1": BUNDLES[operation], "hub2": BUNDLES[operation]}, "0.2")
    if guard is policy and operation == "INSERT":
        owned.ask("DROP POLICY b ON clusters")
    # To tell whose rows it has changed, PostgreSQL wants more of a rule than to do nothing.
    ignored = pytest.raises(
        (RefusedError, TableRefusedError), match=r"a trigger, a rule or a policy|RETURNING|row-level"
    )
    with owned.open() as store, store.session() as session, ignored:
        session.write_together(newer, 60) if together else session.write(newer[0])
    assert owned.rows() == before
    assert known(owned, "hub1", "hub2") == dict.fromkeys([("hub1", "clusters"), ("hub2", "clusters")], Version(0, 1))


@pytest.mark.parametrize("guard", GUARDS)
def test_what_a_hybrid_deletes_is_not_ignored(owned: Target, guard: Guard) -> None:
    before = fill(owned, guard)
    owned.ask(guard("DELETE"))
    with pytest.raises(RefusedError, match="a trigger, a rule or a policy"):
        owned.write(hybrid("0.1", "0.2", {"delete": [{"id": 1}]}))
    assert owned.rows() == before


@pytest.mark.parametrize("guard", GUARDS)
def test_a_source_is_not_forgotten_while_a_table_keeps_its_rows(owned: Target, guard: Guard) -> None:
    before = fill(owned, guard)
    owned.ask(guard("DELETE"))
    with owned.open() as store, pytest.raises(TableRefusedError, match="keeps rows of source 'hub1'"):
        store.forget("hub1")
    assert owned.rows() == before
    assert known(owned) == {("hub1", "clusters"): Version(0, 1)}


@pytest.mark.parametrize("guard", GUARDS)
def test_a_silent_source_stays_active_while_a_table_keeps_its_rows(
    owned: Target, guard: Guard, caplog: pytest.LogCaptureFixture
) -> None:
    before = fill(owned, guard)
    owned.write(change([row(1)], source="hub3", table="free"))
    owned.ask(guard("DELETE"))
    with owned.open() as store:
        assert store.set_inactive(timedelta(0), OnInactive.DELETE) == ["hub3"]
        assert [each.active for each in store.sources()] == [True, True, False]
    assert owned.rows() == before
    assert "keeps rows of source 'hub1'" in caplog.text


@pytest.mark.parametrize("rows", [20, 600], ids=["few rows", "many rows"])
@pytest.mark.parametrize("operation", ["INSERT", "UPDATE", "DELETE"])
def test_what_was_ignored_is_written_when_the_trigger_is_gone(target: Target, rows: int, operation: str) -> None:
    target.write(change([row(number) for number in range(rows)]))
    target.ask(trigger(operation))
    # Ten are new, the others differ, and the last ten are gone.
    newer = change([row(number, "new") for number in range(-10, rows - 10)], "0.2")
    first = change([row(number) for number in range(rows)], source="hub2")
    for each in (newer, first) if operation == "INSERT" else (newer,):
        with pytest.raises(RefusedError, match="a trigger, a rule or a policy"):
            target.write(each)
    assert target.ask("SELECT count(*), max(name) FROM clusters") == [(rows, "a")]
    target.ask("DROP TRIGGER ignore ON clusters")
    assert target.write(newer) == RowsChanged(compared=rows, inserted=10, updated=rows - 10, deleted=10)


def test_a_trigger_may_change_values(target: Target) -> None:
    target.write(change([row(1)], source="hub1"), change([row(1)], source="hub2"), change([row(1)], source="hub3"))
    target.ask(
        "CREATE FUNCTION raise_case() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.name := upper(NEW.name); RETURN NEW; END $$;"
        "CREATE TRIGGER raise_case BEFORE INSERT OR UPDATE ON clusters FOR EACH ROW EXECUTE FUNCTION raise_case()"
    )
    newer = {source: [row(1, "new"), row(2)] for source in ("hub1", "hub2")}
    done = write_together(target, joined(newer, "0.2"))
    assert done == [RowsChanged(compared=2, inserted=1, updated=1)] * 2
    assert target.write(change([row(1, "new")], "0.2", source="hub3")).updated == 1
    assert [name for _, _, name in target.rows()] == ["NEW", "A", "NEW", "A", "NEW"]


@pytest.mark.parametrize("rows", [10, 600], ids=["few rows", "many rows"])
def test_a_table_whose_rows_are_secured_by_policies_is_filled(owned: Target, rows: int) -> None:
    fill(owned, policy)
    owned.ask(policy("nothing"))
    assert owned.write(change([row(number) for number in range(rows)], source="hub3")).inserted == rows
    newer = change([row(number, "new") for number in range(1, rows + 1)], "0.2", source="hub3")
    assert owned.write(newer) == RowsChanged(compared=rows, inserted=1, updated=rows - 1, deleted=1)


@pytest.mark.parametrize(
    ("sql_type", "before", "after"),
    [
        ("uuid", "0B6E0000-77F2-4B8A-9F3D-000000000001", "0b6e0000-77f2-4b8a-9f3d-000000000002"),
        ("date", "2026-01-02", "2026-01-03"),
        ("inet", "10.0.0.1", "10.0.0.2"),
        ("point", "(1,2)", "(1,3)"),
        ("varchar(5)", "abcde", "abcd"),
        ("json", '{"a": 1}', '{"a":1}'),
        ("jsonb", '{"a": 1}', '{"a": 2}'),
    ],
)
def test_columns_of_other_types_that_somebody_made(target: Target, sql_type: str, before: str, after: str) -> None:
    target.ask(f"CREATE TABLE clusters (source text, id bigint, name {sql_type}, PRIMARY KEY (source, id))")
    assert target.write(change([row(1, before)], "0.1")).inserted == 1
    assert target.write(change([row(1, before)], "0.2")).changed == 0
    assert target.write(change([row(1, after)], "0.3")).updated == 1
    # Any text is a JSON string.
    if not sql_type.startswith("json"):
        with pytest.raises(RefusedError):
            target.write(change([row(1, "no such value")], "0.4"))


def test_what_is_no_table_takes_no_rows(target: Target) -> None:
    target.ask("CREATE VIEW clusters AS SELECT 'x' AS source, 1 AS id, 'a' AS name")
    with pytest.raises((TableRefusedError, RefusedError)):
        target.write(change([row(1)]))


_BUNDLES = st.lists(
    st.tuples(st.booleans(), st.dictionaries(st.integers(0, 6), st.sampled_from(["a", "b", 1, 2.5, None]), max_size=6)),
    min_size=1,
    max_size=6,
)


@given(_BUNDLES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_table_equals_what_the_bundles_said(target: Target, bundles: list[tuple[bool, dict[int, object]]]) -> None:
    """Complete bundles, and hybrids that add up, of one kind each into one table."""
    plain: dict[int, object] = {}
    with target.open() as store:
        store.forget("hub1")
        for number, (complete, objects) in enumerate(bundles):
            items = [row(key, value) for key, value in objects.items()]
            version = f"{number}.0"
            each = change(items, version, kind=f"k{number}")
            if not complete:
                gone = [{"id": key} for key in list(plain)[:1] if key not in objects]
                each = replace(hybrid(None, version, {"update": items, "delete": gone}), kind=f"k{number}")
                plain = {key: value for key, value in plain.items() if {"id": key} not in gone}
            before, plain = dict(plain), objects if complete else plain | objects
            with store.session() as session:
                done = session.write(each)
            assert done.inserted == len(plain.keys() - before.keys())
    found = target.ask("SELECT id, name FROM clusters WHERE source = 'hub1'") if plain else []
    assert {key: _text(value) for key, value in found} == {key: _text(value) for key, value in plain.items()}


def _text(value: object) -> str:
    text = str(value)
    return text.rstrip("0").rstrip(".") if "." in text else text
