"""What every database that keeps state must do. A store's own tests inherit all of this."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from penstock import faults
from penstock.conflation.bundle import Place, Processed
from penstock.conflation.kinds import Sync
from penstock.conflation.unmet_dependency import Parked
from penstock.conflation.version import Version, parse_version
from penstock.destinations.state.bundle_rows import RowRules, rows_of_pack
from penstock.destinations.state.store.contract import OnInactive, RestsOn, RowsChanged, StateChange, StateStore
from penstock.destinations.state.store.places import DuckdbPlace, PostgresPlace, open_store
from penstock.errors import PenstockError, RefusedError, TransientError

Row = dict[str, Any]
NOTHING = RowsChanged()


@dataclass(frozen=True)
class Target(ABC):
    """A database, and a way to look at it that is not the store's."""

    place: PostgresPlace | DuckdbPlace

    @abstractmethod
    def ask(self, query: str) -> list[tuple[Any, ...]]: ...

    @contextmanager
    def open(self, connections: int = 1) -> Iterator[StateStore]:
        with open_store(self.place, connections) as store:
            yield store

    def write(self, *changes: StateChange) -> RowsChanged:
        """Write changes one after the other; returns what became of the last."""
        done = NOTHING
        with self.open() as store, store.session() as session:
            for each in changes:
                done = session.write(each)
        return done

    def rows(self, columns: str = "source, id, name", table: str = "clusters") -> list[tuple[Any, ...]]:
        return self.ask(f"SELECT {columns} FROM {table} ORDER BY {columns}")


def change(
    items: object,
    version: str = "0.1",
    source: str = "hub1",
    kind: str = "clusters",
    table: str = "clusters",
    key: tuple[str, ...] = ("id",),
    sync: Sync = Sync.COMPLETE,
    place: Place | None = None,
    previous: str | None = None,
    **more: Any,
) -> StateChange:
    """A change whose rows are ``items``; of a pack, those of each bundle."""
    datas = [data_of(each) for each in (items.bundles if isinstance(items, Pack) else [items])]
    return StateChange(
        source=source,
        kind=kind,
        table=table,
        key=key,
        version=parse_version(version),
        place=place or Place(0, 7),
        rows=rows_of_pack(datas, RowRules("/items", key, sync)),
        adds_up=sync.adds_up,
        previous=parse_version(previous) if previous else None,
        **more,
    )


def data_of(items: object) -> bytes:
    return items if isinstance(items, bytes) else json.dumps({"items": items}).encode()


@dataclass(frozen=True)
class Pack:
    bundles: Sequence[object]


def row(number: object, name: object = "a", **more: object) -> Row:
    return {"id": number, "name": name, **more}


def hybrid(previous: str | None, version: str, *bundles: Mapping[str, object]) -> StateChange:
    return change(Pack(bundles), version, sync=Sync.HYBRID, previous=previous)


class StoreContract:
    # Complete bundles

    def test_a_first_bundle_makes_the_table_and_fills_it(self, target: Target) -> None:
        assert target.write(change([row(1), row(2, "b")])) == RowsChanged(compared=2, inserted=2)
        assert target.rows() == [("hub1", 1, "a"), ("hub1", 2, "b")]

    def test_an_unchanged_bundle_of_a_newer_version_writes_no_row(self, target: Target) -> None:
        target.write(change([row(1), row(2, None, x=1.5)], "0.1"))
        assert target.write(change([row(2, None, x=1.5), row(1)], "0.2")) == RowsChanged(compared=2)

    def test_only_what_differs_is_written(self, target: Target) -> None:
        target.write(change([row(1), row(2), row(3)], "0.1"))
        done = target.write(change([row(1), row(2, "new"), row(4)], "0.2"))
        assert done == RowsChanged(compared=3, inserted=1, updated=1, deleted=1)
        assert target.rows("id, name") == [(1, "a"), (2, "new"), (4, "a")]

    def test_a_value_may_become_null_and_come_back(self, target: Target) -> None:
        target.write(change([row(1)], "0.1"))
        assert target.write(change([row(1, None)], "0.2")).updated == 1
        assert target.rows("name") == [(None,)]
        assert target.write(change([row(1)], "0.3")).updated == 1

    def test_other_sources_are_untouched(self, target: Target) -> None:
        target.write(change([row(1), row(2)], source="hub1"), change([row(1, "other")], source="hub2"))
        target.write(change([row(2, "new")], "0.2", source="hub1"))
        assert target.rows() == [("hub1", 2, "new"), ("hub2", 1, "other")]

    def test_an_empty_bundle_deletes_all_rows_of_its_source_alone(self, target: Target) -> None:
        target.write(change([row(1), row(2)], source="hub1"), change([row(1)], source="hub2"))
        assert target.write(change([], "0.2", source="hub1")) == RowsChanged(deleted=2)
        assert target.rows("source") == [("hub2",)]

    def test_an_empty_first_bundle_is_known_without_a_table(self, target: Target) -> None:
        assert target.write(change([])) == NOTHING
        assert known(target) == {("hub1", "clusters"): Version(0, 1)}

    def test_two_keys_tell_objects_apart(self, target: Target) -> None:
        key = ("policy", "cluster")
        items = [{"policy": p, "cluster": c, "state": "ok"} for p in "ab" for c in "xy"]
        target.write(change(items, key=key))
        items[2]["state"] = "bad"
        assert target.write(change(items[1:], "0.2", key=key)) == RowsChanged(compared=3, updated=1, deleted=1)

    def test_rows_may_be_nothing_but_their_key(self, target: Target) -> None:
        target.write(change([{"id": 1}, {"id": 2}]))
        done = target.write(change([{"id": 2}, {"id": 3}], "0.2"))
        assert done == RowsChanged(compared=2, inserted=1, deleted=1)

    def test_ten_thousand_rows(self, target: Target) -> None:
        items = [row(f"c{number}", f"n{number}", weight=number / 4) for number in range(10_000)]
        target.write(change(items))
        changed = [{**item, "name": "new"} if number % 10 == 0 else item for number, item in enumerate(items)]
        done = target.write(change([*changed[:9_000], row("more")], "0.2"))
        assert done == RowsChanged(compared=9_001, inserted=1, updated=900, deleted=1_000)
        assert target.ask("SELECT count(*), sum(weight) FROM clusters") == [(9_001, Decimal(sum(range(9_000))) / 4)]

    def test_many_bundles_of_any_size_go_through_one_session(self, target: Target) -> None:
        with target.open() as store, store.session() as session:
            for number in range(16):
                for rows, table in ((600, "large"), (3, "small")):
                    items = [row(key, f"{number}", **{f"c{number // 6}": key}) for key in range(rows)]
                    done = session.write(change(items, f"0.{number}", kind=table, table=table))
                    assert done.updated == (rows if number else 0)
        assert target.ask("SELECT count(*), count(c1), sum(c2) FROM large WHERE name = '15'") == [(600, 0, 179_700)]

    # Versions

    @pytest.mark.parametrize("version", ["0.5", "0.4", "0.0"])
    def test_a_version_that_is_not_newer_changes_nothing(self, target: Target, version: str) -> None:
        target.write(change([row(1)], "0.5"))
        assert target.write(change([row(2)], version)) == RowsChanged(already=True)
        assert target.rows("id") == [(1,)]
        assert known(target) == {("hub1", "clusters"): Version(0, 5)}

    @pytest.mark.parametrize(("first", "second"), [("0.5", "0.6"), ("0.9", "0.10"), ("0.5", "1.0"), ("9.9", "10.0")])
    def test_a_newer_version_is_written(self, target: Target, first: str, second: str) -> None:
        target.write(change([row(1)], first))
        assert target.write(change([row(2)], second)).inserted == 1
        assert known(target) == {("hub1", "clusters"): parse_version(second)}

    def test_the_place_of_the_newest_bundle_is_known(self, target: Target) -> None:
        target.write(change([row(1)], "3.5", place=Place(2, 90, 4)))
        with target.open() as store:
            found = store.known(["hub1", "hub2", "no\0such"])
        assert found.processed == {("hub1", "clusters"): Processed(Version(3, 5), Place(2, 90, 4))}

    def test_versions_are_of_one_kind_and_source(self, target: Target) -> None:
        target.write(change([row(1)], "0.5"), change([row(1)], "0.1", source="hub2"))
        done = target.write(change([row(1)], "0.2", kind="policies", table="policies"))
        assert done.inserted == 1
        with target.open() as store:
            assert set(store.known(["hub1"]).processed) == {("hub1", "clusters"), ("hub1", "policies")}
            assert store.known([]).processed == {}

    def test_a_change_that_rests_on_another_version_is_not_made(self, target: Target) -> None:
        target.write(change([row(1)], "0.5", kind="policies", table="policies"))
        resting = change([row(2)], rests_on=RestsOn("policies", Version(0, 4)))
        with pytest.raises(TransientError, match=r"'policies' of source 'hub1' has changed meanwhile.* has 0\.5"):
            target.write(resting)
        with pytest.raises(TransientError, match="the database has 0"):
            target.write(replace(resting, rests_on=RestsOn("policies", None)))
        assert known(target) == {("hub1", "policies"): Version(0, 5)}
        assert target.write(replace(resting, rests_on=RestsOn("policies", Version(0, 5)))).inserted == 1

    # Deltas, packs and hybrids

    def test_a_delta_changes_what_it_names(self, target: Target) -> None:
        target.write(change([row(1), row(2)]))
        delta = change(
            [row(2, "new"), row(3)], kind="delta", sync=Sync.DELTA, rests_on=RestsOn("clusters", Version(0, 1))
        )
        assert target.write(delta) == RowsChanged(compared=2, inserted=1, updated=1)
        assert target.rows("id, name") == [(1, "a"), (2, "new"), (3, "a")]

    def test_of_a_pack_the_newest_word_on_each_object_counts(self, target: Target) -> None:
        target.write(change([row(1), row(2), row(3)]))
        pack = Pack([[row(1, "x"), row(2, "y")], [row(2, "z"), row(4)]])
        done = target.write(change(pack, "0.9", kind="delta", sync=Sync.DELTA))
        assert done == RowsChanged(compared=3, inserted=1, updated=2)
        assert target.rows("id, name") == [(1, "x"), (2, "z"), (3, "a"), (4, "a")]

    def test_a_pack_that_does_not_follow_what_is_there_is_not_written(self, target: Target) -> None:
        target.write(change([row(1)], "0.2", kind="delta", sync=Sync.DELTA))
        with pytest.raises(TransientError, match="changed meanwhile"):
            target.write(change([row(2)], "0.4", kind="delta", sync=Sync.DELTA, previous="0.1"))
        assert target.write(change([row(2)], "0.4", kind="delta", sync=Sync.DELTA, previous="0.2")).inserted == 1
        with pytest.raises(TransientError, match="the database has none"):
            target.write(change([row(2)], "0.4", kind="other", sync=Sync.DELTA, previous="0.2"))

    def test_a_hybrid_creates_updates_and_deletes(self, target: Target) -> None:
        target.write(hybrid(None, "0.1", {"create": [row(1), row(2), row(3)]}))
        done = target.write(
            hybrid("0.1", "0.2", {"create": [row(4)], "update": [row(1, "new")], "delete": [{"id": 2, "ns": "x"}]})
        )
        assert done == RowsChanged(compared=3, inserted=1, updated=1, deleted=1)
        assert target.ask("SELECT * FROM clusters ORDER BY id") == [
            ("hub1", 1, "new"),
            ("hub1", 3, "a"),
            ("hub1", 4, "a"),
        ]

    def test_a_hybrid_may_list_all_that_there_is(self, target: Target) -> None:
        target.write(hybrid(None, "0.1", {"resync": [row(1), row(2), row(3)]}), change([row(2)], source="hub2"))
        done = target.write(hybrid("0.1", "0.2", {"resync_metadata": [{"id": 1}, {"id": 3}, {"id": 9}]}))
        assert done == RowsChanged(compared=3, deleted=1)
        assert target.rows("source, id") == [("hub1", 1), ("hub1", 3), ("hub2", 2)]
        assert target.write(hybrid("0.2", "0.3", {"resync_metadata": []})) == RowsChanged(deleted=2)

    def test_a_pack_of_hybrids_counts_in_its_order(self, target: Target) -> None:
        target.write(hybrid(None, "0.1", {"create": [row(1), row(2), row(3)]}))
        done = target.write(
            hybrid("0.1", "0.4", {"delete": [{"id": 1}]}, {"resync_metadata": [{"id": 1}, {"id": 2}]},
                   {"create": [row(1, "again"), row(5)]})
        )  # fmt: skip
        assert done.deleted == 1
        assert target.rows("id, name") == [(1, "again"), (2, "a"), (5, "a")]

    # Columns and values

    def test_new_fields_become_columns_and_missing_ones_null(self, target: Target) -> None:
        target.write(change([row(1, labels={"env": "prod"})], "0.1"))
        target.write(change([row(1, zone="b"), row(2)], "0.2"))
        assert target.rows("id, labels_env, zone") == [(1, None, "b"), (2, None, None)]

    def test_a_column_that_only_somebody_else_fills_is_left_alone(self, target: Target) -> None:
        target.write(change([row(1), row(2)], "0.1"))
        target.ask("ALTER TABLE clusters ADD COLUMN note VARCHAR")
        target.ask("UPDATE clusters SET note = 'mine'")
        assert target.write(change([row(1), row(2, "new")], "0.2")).updated == 1
        assert target.rows("note") == [("mine",), ("mine",)]

    @pytest.mark.parametrize(
        ("values", "stored"),
        [
            ([1, 9007199254740993], ["1", "9007199254740993"]),
            ([1, 2.5], ["1", "2.5"]),
            ([9007199254740993, 0.1], ["9007199254740993", "0.1"]),
            ([1, "x"], ["1", "x"]),
            ([True, 7], ["1", "7"]),
            ([True, "yes"], ["true", "yes"]),
            ([2.5, "x"], ["2.5", "x"]),
            ([1, 2.5, "x"], ["1", "2.5", "x"]),
            ([0.1, 1e30], ["0.1", "1e+30"]),
            ([1, [1, {"a": None}]], ["1", '[1,{"a":null}]']),
        ],
        ids=str,
    )
    def test_a_column_is_widened_without_losing_anything(
        self, target: Target, values: list[object], stored: list[str]
    ) -> None:
        for number, value in enumerate(values):
            target.write(change([row(1, value)], source=f"hub{number}"))
        found = [str(value).rstrip("0").rstrip(".") if isinstance(value, Decimal) else str(value)
                 for _, value in target.rows("source, name")]  # fmt: skip
        assert found == stored
        for number, value in enumerate(values):
            assert not target.write(change([row(1, value)], "0.2", source=f"hub{number}")).inserted

    def test_numbers_keep_their_digits(self, target: Target) -> None:
        target.write(
            change(b'{"items": [{"id": 1, "n": 0.1234567890123456789e1}, {"id": 2, "n": 12345678901234567.25}]}')
        )
        assert target.rows("n") == [(Decimal("1.234567890123456789"),), (Decimal("12345678901234567.25"),)]

    @pytest.mark.parametrize(
        "text", ["", " ", "NULL", "\\N", 'a,"b"\n\tc', "日本 😀", "'; DROP TABLE clusters; --", "%s %(source)s $1"]
    )
    def test_text_is_kept_as_it_is(self, target: Target, text: str) -> None:
        source = f"hub {text}"
        target.write(change([row(text, text)], source=source))
        assert target.rows() == [(source, text, text)]
        assert target.write(change([row(text, text)], "0.2", source=source)).changed == 0

    def test_words_of_sql_are_names_like_others(self, target: Target) -> None:
        words = {"select": 1, "order": "x", "user": True, "from": 2.5, "offset": 3, "table": "t"}
        target.write(change([{"group": "g", **words}], table="order", key=("group",)))
        done = target.write(change([{"group": "g", **words, "user": False}], "0.2", table="order", key=("group",)))
        assert done == RowsChanged(compared=1, updated=1)

    @pytest.mark.parametrize("table", ["Mixed Case", 'a"b', "50%", "a;b"])
    def test_a_table_may_have_any_name(self, target: Target, table: str) -> None:
        target.write(change([row(1)], table=table))
        assert target.write(change([row(1, "new"), row(2)], "0.2", table=table)) == RowsChanged(
            2, inserted=1, updated=1
        )

    @pytest.mark.parametrize("field", ["source", "_inactive_since"])
    def test_a_field_with_the_name_of_our_own_column_is_refused(self, target: Target, field: str) -> None:
        with pytest.raises(RefusedError, match=f"the field '{field}'"):
            target.write(change([row(1, **{field: "x"})]))
        assert known(target) == {}

    @pytest.mark.parametrize("table", ["penstock_versions", "transport"])
    def test_our_own_tables_are_nobodys_state(self, target: Target, table: str) -> None:
        with pytest.raises(PenstockError, match="Penstock's own"):
            target.write(change([row(1)], table=table))

    def test_a_table_that_others_made_is_filled_and_what_it_cannot_hold_refused(self, target: Target) -> None:
        target.ask("CREATE TABLE clusters (source VARCHAR, id INTEGER, name VARCHAR, weight SMALLINT, extra INTEGER)")
        assert target.write(change([row(1, weight=7)])).inserted == 1
        for wrong in (row(1, weight=70_000), row(1, weight=1.5), row(1, weight="x"), row(3_000_000_000)):
            with pytest.raises(RefusedError, match="and cannot hold "):
                target.write(change([wrong], "0.2"))
        assert target.rows("id, weight") == [(1, 7)]
        assert target.write(change([row(1, weight=8)], "0.2")).updated == 1

    def test_keys_that_are_equal_only_in_the_table_are_refused(self, target: Target) -> None:
        target.write(change([row(1.5)]))
        with pytest.raises(RefusedError, match="two rows have the same key"):
            target.write(change(b'{"items": [{"id": 1}, {"id": 1.0}]}', "0.2"))

    # Several at once, and failures

    def test_writers_of_different_sources_do_not_disturb_each_other(self, target: Target) -> None:
        def write(number: int) -> RowsChanged:
            with store.session() as session:
                items = [row(each, number, **{f"extra{number % 3}": each}) for each in range(50)]
                return session.write(change(items, source=f"hub{number}"))

        with target.open(connections=4) as store, ThreadPoolExecutor(4) as pool:
            assert {done.inserted for done in pool.map(write, range(24))} == {50}
        assert target.ask("SELECT count(*), count(DISTINCT source) FROM clusters") == [(1200, 24)]

    def test_of_writers_of_one_source_the_newest_stays(self, target: Target) -> None:
        begin = threading.Barrier(4)

        def write(number: int) -> RowsChanged:
            begin.wait()
            with store.session() as session:
                return session.write(change([row(1, f"v{number}")], f"0.{number}"))

        with target.open(connections=4) as store, ThreadPoolExecutor(4) as pool:
            for turn in range(5):
                assert any(not done.already for done in pool.map(write, range(4 * turn, 4 * turn + 4)))
        assert target.rows("name") == [("v19",)]
        assert known(target) == {("hub1", "clusters"): Version(0, 19)}

    def test_of_the_same_bundle_written_twice_at_once_one_counts(self, target: Target) -> None:
        begin = threading.Barrier(4)

        def write(_: int) -> RowsChanged:
            begin.wait()
            with store.session() as session:
                return session.write(change([row(number) for number in range(100)]))

        with target.open(connections=4) as store, ThreadPoolExecutor(4) as pool:
            done = list(pool.map(write, range(4)))
        assert sorted(each.already for each in done) == [False, True, True, True]

    def test_a_failure_before_the_commit_leaves_nothing(self, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
        target.write(change([row(1)], "0.1", route="r", positions={0: 5}))
        failing = change([row(2, "new")], "0.2", route="r", positions={0: 9})
        with target.open() as store, store.session() as session:
            monkeypatch.setenv("PENSTOCK_FAULTS", "destination.writing=raise")
            faults.arm()
            with pytest.raises(faults.InjectedFault):
                session.write(failing)
            monkeypatch.delenv("PENSTOCK_FAULTS")
            faults.arm()
            assert store.known(["hub1"]).processed["hub1", "clusters"].version == Version(0, 1)
            assert store.positions("r") == {0: 5}
            assert session.write(failing) == RowsChanged(compared=1, inserted=1, deleted=1)
            assert store.positions("r") == {0: 9}

    def test_a_refused_bundle_leaves_nothing_and_the_session_goes_on(self, target: Target) -> None:
        target.ask("CREATE TABLE clusters (source VARCHAR, id INTEGER, name VARCHAR CHECK (name <> 'bad'))")
        with target.open() as store, store.session() as session:
            with pytest.raises(RefusedError):
                session.write(change([row(1), row(2, "bad")], route="r", positions={0: 3}))
            assert store.known(["hub1"]).processed == {}
            assert store.positions("r") == {}
            assert session.write(change([row(1)], "0.2")).inserted == 1

    # Positions

    def test_a_position_only_grows(self, target: Target) -> None:
        target.write(change([row(1)], "0.1", route="r", positions={0: 10, 3: 4}))
        target.write(change([row(1)], "0.2", route="r", positions={0: 8, 3: 5}))
        target.write(change([row(1)], "0.2", route="other", positions={0: 1}))
        with target.open() as store:
            store.note_positions("r", {0: 9, 7: 0})
            assert store.positions("r") == {0: 10, 3: 5, 7: 0}
            assert store.positions("other") == {0: 1}
            assert store.positions("none") == {}
        assert target.ask("SELECT count(*) FROM transport WHERE name = 'r'") == [(3,)]

    # Parked bundles

    def test_a_parked_bundle_is_known_until_a_newer_one_is_written(self, target: Target) -> None:
        with target.open() as store, store.session() as session:
            store.note_parked("hub1", "clusters", Parked(Version(0, 3), "too long"))
            store.note_parked("hub1", "clusters", Parked(Version(0, 4), "still too long"))
            assert store.known(["hub1"]).parked == {("hub1", "clusters"): Parked(Version(0, 4), "still too long")}
            session.write(change([row(1)], "0.2"))
            assert store.known(["hub1"]).parked
            session.write(change([row(1)], "0.5"))
            assert store.known(["hub1"]).parked == {}

    # Sources

    def test_sources_are_shown_with_their_kinds(self, target: Target) -> None:
        target.write(change([row(1)], "0.5"), change([row(1)], "2.1", kind="policies", table="policies"))
        target.write(change([row(1)], source="hub0"))
        with target.open() as store:
            first, second = store.sources()
        assert (first.source, second.source, first.active) == ("hub0", "hub1", True)
        found = [(kind.kind, str(kind.version), kind.table) for kind in second.kinds]
        assert found == [("clusters", "0.5", "clusters"), ("policies", "2.1", "policies")]
        assert second.updated_at == max(kind.updated_at for kind in second.kinds)

    def test_a_source_is_forgotten_in_all_tables(self, target: Target) -> None:
        target.write(change([row(1), row(2)]), change([row(1)], kind="policies", table="policies"))
        target.write(change([row(1)], source="hub2"))
        with target.open() as store:
            assert store.forget("hub1") == 3
            assert store.forget("hub1") == 0
            assert [source.source for source in store.sources()] == ["hub2"]
        assert target.rows("source") == [("hub2",)]
        assert target.write(change([row(1)], "0.1")).inserted == 1, "an old version counts again"

    def test_the_clock_is_the_one_that_versions_are_noted_by(self, target: Target) -> None:
        with target.open() as store, store.session() as session:
            before = store.clock()
            session.write(change([row(1)]))
            (found,) = store.sources()
            assert before <= found.updated_at.timestamp() <= store.clock()

    def test_a_source_that_reports_stays_active(self, target: Target) -> None:
        target.write(change([row(1)]))
        with target.open() as store:
            assert store.set_inactive(timedelta(minutes=5), OnInactive.DELETE) == []
        assert target.rows("id") == [(1,)]

    @pytest.mark.parametrize(
        ("rule", "rows"), [(OnInactive.KEEP, 2), (OnInactive.MARK, 2), (OnInactive.DELETE, 0)], ids=str
    )
    def test_a_silent_source_becomes_inactive_and_comes_back(self, target: Target, rule: OnInactive, rows: int) -> None:
        policies = change([row(1)], "0.7", kind="policies", table="policies")
        target.write(change([row(1)], "0.5"), policies)
        with target.open() as store:
            assert store.set_inactive(timedelta(0), rule) == ["hub1"]
            assert store.set_inactive(timedelta(0), rule) == []
            (found,) = store.sources()
            assert not found.active
        count = "SELECT (SELECT count(*) FROM clusters) + (SELECT count(*) FROM policies)"
        assert target.ask(count) == [(rows,)]
        marked = "SELECT count(_inactive_since) FROM clusters UNION ALL SELECT count(_inactive_since) FROM policies"
        if rule is OnInactive.MARK:
            assert target.ask(marked) == [(1,), (1,)]
        assert target.write(change([row(1, "old")], "0.4")).already, "never back in time"
        back = target.write(change([row(1)], "0.6"))
        assert back.inserted == (rule is OnInactive.DELETE)
        with target.open() as store:
            assert store.sources()[0].active
        if rule is OnInactive.MARK:
            assert target.ask(marked) == [(0,), (0,)]
        # The same version is needed again where the rows went, and only there.
        assert target.write(policies).already == (rule is not OnInactive.DELETE)
        assert target.ask(count) == [(2,)]

    def test_a_source_that_sends_nothing_new_is_not_silent(self, target: Target) -> None:
        target.write(change([row(1)]), change([row(1)], source="hub2"))
        with target.open() as store:
            store.note_seen([])
            assert store.set_inactive(timedelta(0), OnInactive.MARK) == ["hub1", "hub2"]
            store.note_seen(["hub2", "hub2", "hub3", "no\0such"])
            assert [source.active for source in store.sources()] == [False, True]
            assert store.set_inactive(timedelta(minutes=1), OnInactive.MARK) == []
        assert target.rows("source, _inactive_since IS NULL") == [("hub1", False), ("hub2", True)]

    def test_to_have_been_seen_counts_as_a_sign_of_life(self, target: Target) -> None:
        target.write(change([row(1)]), change([row(1)], source="hub2"))
        target.ask("UPDATE penstock_versions SET updated_at = updated_at - INTERVAL '1 hour'")
        with target.open() as store:
            store.note_seen(["hub1"])
            assert store.set_inactive(timedelta(minutes=5), OnInactive.KEEP) == ["hub2"]

    def test_rows_that_went_with_their_source_are_wanted_again(self, target: Target) -> None:
        target.write(change([row(1)], "0.5"))
        with target.open() as store:
            store.set_inactive(timedelta(0), OnInactive.DELETE)
            assert store.known(["hub1"]).processed == {
                ("hub1", "clusters"): Processed(Version(0, 4), None, is_there=False)
            }
        assert target.write(change([row(1)], "0.5")).inserted == 1
        assert target.write(change([row(1)], "0.5")).already


def known(target: Target, *sources: str) -> dict[tuple[str, str], Version]:
    with target.open() as store:
        return {name: done.version for name, done in store.known(sources or ["hub1"]).processed.items()}
