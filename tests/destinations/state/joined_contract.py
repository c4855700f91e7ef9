"""What every database that keeps state must do with changes that are written together. Its own tests inherit this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import faults
from penstock.conflation.kinds import Sync
from penstock.conflation.unmet_dependency import Parked
from penstock.conflation.version import Version, parse_version
from penstock.destinations.state.bundle_rows import RowRules
from penstock.destinations.state.store.contract import OnInactive, RestsOn, RowsChanged, StateChange
from penstock.destinations.state.writing.joined_rows import rows_of_each
from penstock.errors import RefusedError, TransientError
from tests.destinations.state.store_contract import Row, Target, change, data_of, known, row

PATIENCE = 60.0
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.lists(st.integers(0, 3), max_size=2),
    st.fixed_dictionaries({"in": st.sampled_from([1, 2.5, "x"])}),
)
ROWS = st.lists(
    st.fixed_dictionaries({"id": st.integers(1, 3)}, optional={"x": VALUES, "y": VALUES}),
    max_size=3,
    unique_by=lambda item: str(item["id"]),
)


def joined(bundles: Mapping[str, object], version: str = "0.1", **more: Any) -> list[StateChange]:
    """Changes to be written together: by source, what each one's bundle has."""
    changes = [change([], version, source, **more) for source in bundles]
    rules = RowRules("/items", changes[0].key, more.get("sync", Sync.COMPLETE))
    rows = rows_of_each([data_of(items) for items in bundles.values()], rules)
    assert rows is not None
    return [replace(each, rows=its) for each, its in zip(changes, rows, strict=True)]


def write_together(target: Target, changes: Sequence[StateChange]) -> Sequence[RowsChanged]:
    with target.open() as store, store.session() as session:
        return session.write_together(changes, PATIENCE)


def plain(value: object) -> str:
    """A value however its column is typed."""
    if isinstance(value, float | Decimal):
        digits = f"{Decimal(str(value)):f}"
        return digits.rstrip("0").rstrip(".") if "." in digits else digits
    return str(value)


class JoinedContract:
    def test_bundles_that_are_written_together_are_all_there(self, target: Target) -> None:
        done = write_together(target, joined({"hub1": [row(1), row(2)], "hub2": [row(1, "b")], "hub3": []}))
        assert done == [RowsChanged(compared=2, inserted=2), RowsChanged(compared=1, inserted=1), RowsChanged()]
        assert target.rows() == [("hub1", 1, "a"), ("hub1", 2, "a"), ("hub2", 1, "b")]
        sources = ["hub1", "hub2", "hub3"]
        assert known(target, *sources) == {(source, "clusters"): Version(0, 1) for source in sources}

    def test_each_source_counts_its_own_differences(self, target: Target) -> None:
        three = [row(1), row(2), row(3)]
        write_together(target, joined({"hub1": three, "hub2": three, "hub3": three, "hub4": three}))
        newer = {
            "hub1": [row(1), row(2, "new"), row(4)],
            "hub2": [],
            "hub3": three,
            "hub5": [row(9)],
        }
        done = write_together(target, joined(newer, "0.2"))
        assert done == [
            RowsChanged(compared=3, inserted=1, updated=1, deleted=1),
            RowsChanged(deleted=3),
            RowsChanged(compared=3),
            RowsChanged(compared=1, inserted=1),
        ]
        assert target.rows("source, id") == [
            *(("hub1", number) for number in (1, 2, 4)),
            *(("hub3", number) for number in (1, 2, 3)),
            *(("hub4", number) for number in (1, 2, 3)),
            ("hub5", 9),
        ]

    def test_empty_bundles_together_delete_all_rows_of_their_sources_alone(self, target: Target) -> None:
        write_together(target, joined({"hub1": [row(1)], "hub2": [row(1), row(2)], "hub3": [row(1)]}))
        done = write_together(target, joined({"hub1": [], "hub2": []}, "0.2"))
        assert done == [RowsChanged(deleted=1), RowsChanged(deleted=2)]
        assert target.rows("source") == [("hub3",)]

    def test_a_version_that_is_not_newer_changes_nothing_and_the_others_are_written(self, target: Target) -> None:
        target.write(change([row(1)], "0.5"))
        done = write_together(target, joined({"hub1": [row(7)], "hub2": [row(2)]}, "0.4"))
        assert done == [RowsChanged(already=True), RowsChanged(compared=1, inserted=1)]
        assert target.rows("source, id") == [("hub1", 1), ("hub2", 2)]
        again = write_together(target, joined({"hub1": [row(7)], "hub2": [row(7)]}, "0.4"))
        assert again == [RowsChanged(already=True)] * 2
        assert target.rows("source, id") == [("hub1", 1), ("hub2", 2)]

    def test_deltas_together_change_what_they_name(self, target: Target) -> None:
        write_together(target, joined({"hub1": [row(1), row(2)], "hub2": [row(1)]}))
        deltas = joined({"hub1": [row(2, "new")], "hub2": [row(3)]}, kind="delta", sync=Sync.DELTA)
        assert write_together(target, deltas) == [
            RowsChanged(compared=1, updated=1),
            RowsChanged(compared=1, inserted=1),
        ]
        assert target.rows() == [("hub1", 1, "a"), ("hub1", 2, "new"), ("hub2", 1, "a"), ("hub2", 3, "a")]

    def test_if_one_of_them_rests_on_another_version_none_is_written(self, target: Target) -> None:
        target.write(*(change([row(1)], "0.5", f"hub{n}", kind="policies", table="policies") for n in (1, 2)))
        right, wrong = (RestsOn("policies", Version(0, minor)) for minor in (5, 4))
        changes = joined({"hub1": [row(1)], "hub2": [row(2)]}, rests_on=right)
        bad = [changes[0], replace(changes[1], rests_on=wrong)]
        with pytest.raises(TransientError, match=r"'policies' of source 'hub2' has changed meanwhile"):
            write_together(target, bad)
        assert target.ask("SELECT count(*) FROM penstock_versions WHERE kind = 'clusters'") == [(0,)]
        assert [done.inserted for done in write_together(target, changes)] == [1, 1]

    def test_if_one_of_them_is_refused_none_is_written_and_the_session_goes_on(self, target: Target) -> None:
        target.ask("CREATE TABLE clusters (source VARCHAR, id INTEGER, name VARCHAR CHECK (name <> 'bad'))")
        changes = joined({"hub1": [row(1)], "hub2": [row(2, "bad")]}, route="r", positions={0: 3})
        with target.open() as store, store.session() as session:
            with pytest.raises(RefusedError):
                session.write_together(changes, PATIENCE)
            assert store.known(["hub1", "hub2"]).processed == {}
            assert store.positions("r") == {}
            assert session.write(changes[0]).inserted == 1

    def test_a_failure_before_the_commit_leaves_nothing_of_any(
        self, target: Target, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        changes = joined({"hub1": [row(1)], "hub2": [row(2)]}, route="r", positions={0: 9})
        with target.open() as store, store.session() as session:
            monkeypatch.setenv("PENSTOCK_FAULTS", "destination.writing=raise")
            faults.arm()
            with pytest.raises(faults.InjectedFault):
                session.write_together(changes, PATIENCE)
            monkeypatch.delenv("PENSTOCK_FAULTS")
            faults.arm()
            assert store.known(["hub1", "hub2"]).processed == {}
            assert store.positions("r") == {}
            assert [done.inserted for done in session.write_together(changes, PATIENCE)] == [1, 1]
            assert store.positions("r") == {0: 9}

    def test_new_fields_of_one_become_columns_of_all(self, target: Target) -> None:
        write_together(target, joined({"hub1": [row(1, zone="a")], "hub2": [row(1, zone="a")]}))
        write_together(target, joined({"hub1": [row(1, rank=7)], "hub2": [row(1, zone="b")]}, "0.2"))
        assert target.rows("source, zone, rank") == [("hub1", None, 7), ("hub2", "b", None)]

    def test_what_was_given_up_is_forgotten_only_where_it_is_older(self, target: Target) -> None:
        with target.open() as store:
            for source, version in (("hub1", "0.3"), ("hub2", "0.9"), ("hub3", "0.1")):
                store.note_parked(source, "clusters", Parked(parse_version(version), "too long"))
        write_together(target, joined({"hub1": [row(1)], "hub2": [row(1)]}, "0.5"))
        with target.open() as store:
            assert {source for source, _ in store.known(["hub1", "hub2", "hub3"]).parked} == {"hub2", "hub3"}

    def test_sources_that_were_silent_come_back_together(self, target: Target) -> None:
        write_together(target, joined({"hub1": [row(1)], "hub2": [row(1)], "hub3": [row(1)]}))
        with target.open() as store:
            store.set_inactive(timedelta(seconds=0), OnInactive.MARK)
        write_together(target, joined({"hub1": [row(1)], "hub2": [row(1, "new")]}, "0.2"))
        found = target.rows("source, _inactive_since IS NULL")
        assert found == [("hub1", True), ("hub2", True), ("hub3", False)]
        with target.open() as store:
            assert [each.active for each in store.sources()] == [True, True, False]


together_and_alone = given(bundles=st.lists(st.lists(ROWS, min_size=2, max_size=3), min_size=2, max_size=2))
"""For a test of each store that asks for ``check_together_as_alone``."""


def check_together_as_alone(target: Target, bundles: list[list[list[Row]]]) -> None:
    """Bundles of some sources, and newer ones, and the same again, are written into one table together and into another
    one by one: both end alike, and what changed was counted alike."""
    for source in ("hub0", "hub1", "hub2"):
        with target.open() as store:
            store.forget(source)
    target.ask("DROP TABLE IF EXISTS alone")
    target.ask("DROP TABLE IF EXISTS beside")
    target.ask("DELETE FROM penstock_columns")
    for minor, lists in enumerate([*bundles, bundles[-1]]):
        named = {f"hub{number}": items for number, items in enumerate(lists)}
        done = write_together(target, joined(named, f"0.{minor}", kind="beside", table="beside"))
        with target.open() as store, store.session() as session:
            alone = [
                session.write(change(items, f"0.{minor}", source, kind="alone", table="alone"))
                for source, items in named.items()
            ]
        assert done == alone
    query = "SELECT column_name FROM information_schema.columns WHERE table_name = 'alone' ORDER BY column_name"
    if columns := ", ".join(str(name) for (name,) in target.ask(query)):
        tables = [target.ask(f"SELECT {columns} FROM {table}") for table in ("alone", "beside")]
        first, second = (sorted([*map(plain, values)] for values in table) for table in tables)
        assert first == second
