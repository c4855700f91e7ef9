"""The cases of conflation through the real destination, over a store that keeps to the contract strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.destinations.state.store.contract import StateChange
from penstock.errors import TargetWentBackError
from penstock.testing.waiting import eventually
from tests.destinations.state.bundles import Bench, config, items
from tests.destinations.state.memory_store import Database, MemoryDestination, refuse


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def bench(database: Database, tmp_path: Path) -> Bench:
    return Bench(MemoryDestination(config(), database), tmp_path / "stage")


def written(database: Database) -> list[str]:
    return [f"{kind}{version}" for _, kind, version in database.written]


def test_of_three_bundles_before_a_write_the_newest_is_written(bench: Bench, database: Database) -> None:
    bench.deliver("A0.1 A0.2 A0.3")
    assert written(database) == ["A0.3"]
    assert bench.counts == {"written": 1, "conflated": 2, "failed": 0}


def test_what_comes_while_a_bundle_is_written_is_one_write_afterwards(bench: Bench, database: Database) -> None:
    bench.add("A0.3")
    database.before_write = lambda change: bench.add("A0.4 A0.5") if str(change.version) == "0.3" else None
    bench.deliver()
    bench.deliver()
    assert written(database) == ["A0.3", "A0.5"]


def test_a_bundle_follows_at_once_when_what_it_depends_on_is_written(bench: Bench, database: Database) -> None:
    bench.deliver("CC0.7@0.2")
    assert bench.reasons == ["waits for C 0.2; none is there"]
    bench.deliver("C0.1")
    bench.retry_woken()
    assert (written(database), bench.reasons) == (["C0.1"], ["waits for C 0.2; 0.1 is there"])
    bench.deliver("C0.2")
    bench.retry_woken()
    assert (written(database), bench.waiting) == (["C0.1", "C0.2", "CC0.7"], [])


def test_a_bundle_and_what_it_depends_on_may_come_in_one_batch(bench: Bench, database: Database) -> None:
    bench.deliver("CC0.7@0.2 C0.2")
    assert written(database) == ["C0.2", "CC0.7"]


def test_what_waits_and_is_replaced_does_not_keep_another_kind_waiting(bench: Bench, database: Database) -> None:
    bench.deliver("CC0.7@0.2")
    bench.deliver("CC0.8@0.3")
    bench.deliver("A0.1")
    assert written(database) == ["A0.1"]
    assert bench.reasons == ["waits for C 0.3; none is there"]
    assert bench.counts["conflated"] == 1


def test_equal_and_older_versions_are_dropped_and_a_restarted_producer_is_accepted(
    bench: Bench, database: Database
) -> None:
    for text in ("A0.5", "A0.5", "A0.4", "A1.0"):
        bench.deliver(text)
    assert written(database) == ["A0.5", "A1.0"]
    assert bench.counts == {"written": 2, "conflated": 2, "failed": 0}


def test_a_delta_on_a_newer_base_discards_those_on_older_ones(bench: Bench, database: Database) -> None:
    bench.deliver("C0.1 CC0.3@0.1")
    bench.deliver("D0.1^0.4 D0.2^0.4")
    bench.deliver("D0.3^0.5")
    assert bench.counts["conflated"] == 2
    bench.deliver("CC0.5@0.1")
    bench.retry_woken()
    assert written(database) == ["C0.1", "CC0.3", "CC0.5", "D0.3"]
    assert [row["id"] for row in database.rows("cc", "hub1")] == [1, "0.3"]


def test_a_pack_that_fails_is_merged_under_what_came_meanwhile(bench: Bench, database: Database) -> None:
    bench.deliver("C0.1 CC0.3@0.1")
    bench.add("D0.1^0.3", data=items({"id": "a", "v": 1}, {"id": "b", "v": 1}))

    def fail(change: StateChange) -> None:
        raise refuse("no")

    database.before_write = fail
    bench.deliver()
    position = database.positions["state"]
    database.before_write = lambda change: None
    bench.add("D0.2^0.3", data=items({"id": "b", "v": 2}))
    bench.deliver()
    assert bench.waits == 2, "the newer one must not overtake"
    assert position == database.positions["state"] == {0: 2}
    bench.retry()
    assert {row["id"]: row["v"] for row in database.rows("cc", "hub1")} == {1: "0.3", "a": 1, "b": 2}
    assert (written(database)[-1], database.positions["state"]) == ("D0.2", {0: 4})


def test_the_position_is_that_of_what_waits_longest(bench: Bench, database: Database) -> None:
    bench.deliver("A0.1")
    bench.deliver("CC0.7@0.2 A0.2")
    assert database.positions["state"] == {0: 1}
    bench.deliver("A0.3")
    assert database.positions["state"] == {0: 1}
    bench.deliver("C0.2")
    bench.retry_woken()
    assert database.positions["state"] == {0: 5}


def test_the_position_passes_what_nobody_needed(bench: Bench, database: Database) -> None:
    bench.deliver("A0.2")
    bench.deliver("A0.1")
    assert database.positions["state"] == {0: 2}


def test_a_batch_that_comes_again_is_repeated_and_changes_nothing(bench: Bench, database: Database) -> None:
    bench.deliver("A0.1 C0.1")
    bench.read, bench.counts = 0, type(bench.counts)()
    bench.deliver()
    assert written(database) == ["A0.1", "C0.1"]
    assert bench.counts["written"] == 2


def test_a_database_that_is_away_leaves_everything_waiting_and_gets_the_newest_once(
    bench: Bench, database: Database
) -> None:
    database.away = True
    for generation in range(5):
        bench.deliver(f"A0.{generation} C0.{generation} CC0.{generation}@0.{generation}")
        assert all("away" in reason for reason in bench.reasons)
        assert bench.waits == 3
    database.away = False
    bench.destination._outage.end()
    bench.retry()
    assert written(database) == ["A0.4", "C0.4", "CC0.4"]


def test_a_refused_bundle_is_tried_again_later_each_time_and_then_given_up(bench: Bench, database: Database) -> None:
    def fail(change: StateChange) -> None:
        if change.kind == "C":
            raise refuse("it is too wide.")

    database.before_write = fail
    bench.deliver("C0.2 CC0.7@0.2")
    pauses = []
    while bench.counts["failed"] == 0:
        (failing,) = (each for each in bench.waiting if each.group.endswith("C") and not each.group.endswith("CC"))
        pauses.append(failing.due)
        bench.retry([failing.group])
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    failures = bench.receipts[-1].failures
    assert failures is not None
    assert failures.to_pylist()[0]["code"] == "parked"
    bench.retry_woken()
    assert bench.reasons == ["waits for C 0.2; none is there; C 0.2 has failed: it is too wide. It was tried 5 times."]
    bench.deliver("C0.3 CC0.8@0.3")
    assert bench.counts == {"written": 0, "failed": 1, "conflated": 1}
    database.before_write = lambda change: None
    bench.retry()
    assert written(database) == ["C0.3", "CC0.8"]


def test_a_newer_bundle_replaces_one_that_fails(bench: Bench, database: Database) -> None:
    def fail(change: StateChange) -> None:
        if str(change.version) == "0.1":
            raise refuse("no")

    database.before_write = fail
    bench.deliver("A0.1")
    bench.deliver("A0.2")
    assert (written(database), bench.waiting) == (["A0.2"], [])


def test_data_that_are_no_rows_fail_at_once_and_say_why(bench: Bench, database: Database) -> None:
    bench.deliver("A0.1", data={"items": 7})
    assert bench.counts["failed"] == 1
    failures = bench.receipts[-1].failures
    assert failures is not None
    (failure,) = failures.to_pylist()
    assert failure["code"] == "bad_rows"
    assert "A 0.1 of source 'hub1'" in failure["message"]
    bench.deliver("A0.2")
    assert written(database) == ["A0.2"]


def test_of_a_pack_only_the_bundle_that_is_no_rows_fails(bench: Bench, database: Database) -> None:
    bench.deliver("C0.1 CC0.1@0.1")
    bench.add("D0.1^0.1")
    bench.add("D0.2^0.1", data={"items": 7})
    bench.add("D0.3^0.1")
    bench.deliver()
    assert written(database) == ["C0.1", "CC0.1", "D0.1", "D0.3"]
    assert (bench.counts["failed"], bench.waiting) == (1, [])


def test_of_a_pack_only_the_bundle_that_the_database_refuses_waits_and_what_follows_it(
    bench: Bench, database: Database
) -> None:
    def fail(change: StateChange) -> None:
        if "bad" in str(change.rows):
            raise refuse("no")

    database.before_write = fail
    bench.deliver("C0.1 CC0.1@0.1")
    bench.add("D0.1^0.1")
    bench.add("D0.2^0.1", data=items({"id": "bad", "v": "0.2"}))
    bench.add("D0.3^0.1")
    bench.deliver()
    assert written(database) == ["C0.1", "CC0.1", "D0.1"]
    while bench.counts["failed"] == 0:
        bench.retry()
    bench.retry()
    assert written(database) == ["C0.1", "CC0.1", "D0.1", "D0.3"]
    assert (bench.counts["failed"], bench.counts["conflated"], bench.waiting) == (1, 0, [])


def test_hybrids_that_name_different_bases_are_all_written(bench: Bench, database: Database) -> None:
    bench.deliver("H0.1^0.1 H0.2^0.7")
    assert bench.counts == {"written": 2, "conflated": 0, "failed": 0}


def test_a_source_never_touches_the_rows_of_another(bench: Bench, database: Database) -> None:
    bench.add("A0.1", "hub1")
    bench.add("A0.7", "hub2")
    bench.deliver()
    assert {source for _, source in database.tables} == {"hub1", "hub2"}


def test_what_a_kind_that_left_the_config_left_waiting_disturbs_nobody(
    bench: Bench, database: Database, tmp_path: Path
) -> None:
    bench.deliver("CC0.7@0.2")
    fewer = config(kinds=config().model_dump(mode="json")["kinds"][:2])
    bench.destination = MemoryDestination(fewer, database)
    bench.deliver("A0.1")
    assert written(database) == ["A0.1"]


def test_a_source_that_sends_nothing_new_is_not_silent(bench: Bench, database: Database) -> None:
    bench.deliver("A0.2")
    assert database.seen == set()
    bench.add("A0.1")
    bench.add("CC0.1@0.1", "hub2")
    bench.deliver()
    assert database.seen == {"hub1", "hub2"}


def test_one_bad_source_does_not_keep_the_others_from_being_written_together(
    database: Database, tmp_path: Path
) -> None:
    bench = Bench(MemoryDestination(config(workers=1), database), tmp_path / "stage")
    for turn in (1, 2):
        bench.add(f"A0.{turn}", "bad", items({"v": "no key"}))
        for number in range(20):
            bench.add(f"A0.{turn}", f"hub{number}")
        bench.deliver()
        assert database.transactions == [20] * turn
    assert bench.counts["failed"] == 2


def test_sources_are_not_silent_because_the_database_was_away(database: Database, tmp_path: Path) -> None:
    bench = Bench(MemoryDestination(config(inactive_after="3s"), database), tmp_path / "stage")
    bench.destination._check_every = 0.0
    bench.deliver("A0.1")
    eventually(lambda: (bench.destination.look_after(), database.inactive)[1], "silent sources are looked for")
    database.away = True
    bench.deliver("A0.2")
    database.away, database.inactive = False, []
    bench.destination._outage.end()
    bench.destination.look_after()
    assert database.inactive == []
    bench.retry()
    eventually(lambda: (bench.destination.look_after(), database.inactive)[1], "silent sources are looked for again")


def test_sources_are_not_silent_because_the_clock_of_the_database_was_set(database: Database, tmp_path: Path) -> None:
    bench = Bench(MemoryDestination(config(inactive_after="2s"), database), tmp_path / "stage")
    bench.destination._check_every = 0.0
    bench.deliver("A0.1")

    def look() -> list[str]:
        bench.destination.look_after()
        return database.inactive

    eventually(look, "silent sources are looked for")
    database.clock_ahead, database.inactive = 3600.0, []
    assert look() == []
    eventually(look, "silent sources are looked for again")


def test_what_was_written_just_before_the_database_went_away_is_looked_up_when_it_is_back(
    database: Database, tmp_path: Path
) -> None:
    bench = Bench(MemoryDestination(config(workers=1), database), tmp_path / "stage")
    bench.deliver("A0.1")
    put_back = database.copy()

    def take_over(change: StateChange) -> None:
        if change.source == "hub2":
            # Another server takes over, which lacks what the first one has just taken.
            put_back()
            database.away = True

    bench.add("C0.1 CC0.9@0.9")
    bench.add("A0.2", data=items({"id": 1, "v": "x" * 20_000}))
    bench.add("A0.1", "hub2", items({"id": 1, "v": "y" * 20_000}))
    database.before_write = take_over
    bench.deliver()
    assert written(database) == ["A0.1"]
    database.before_write, database.away = lambda change: None, False
    bench.destination._outage.end()
    bench.retry()
    assert sorted(written(database)) == ["A0.1", "A0.1", "A0.2", "C0.1"]
    assert bench.reasons == ["waits for C 0.9; 0.1 is there"]


def test_what_was_written_before_a_crash_releases_what_waits_for_it(bench: Bench, database: Database) -> None:
    bench.deliver("CC0.1@0.1")
    bench.deliver("C0.1")
    assert [*bench.receipts[-1].wakes] == ["hub1\x1fCC"]
    bench.rewind(1)
    bench.deliver()
    assert [*bench.receipts[-1].wakes] == ["hub1\x1fCC"]
    bench.retry_woken()
    assert written(database) == ["C0.1", "CC0.1"]


def test_a_database_that_lacks_a_retry_alone_is_noticed(bench: Bench, database: Database) -> None:
    # What waits from the first record on keeps the position where it is.
    bench.deliver("CC0.9@0.9")
    bench.deliver("CC0.1@0.1", "hub2")
    bench.deliver("C0.1", "hub2")
    put_back = database.copy()
    bench.retry_woken()
    assert written(database) == ["C0.1", "CC0.1"]
    put_back()
    with pytest.raises(TargetWentBackError):
        bench.deliver("A0.1")


def test_deltas_on_a_newer_base_have_all_their_attempts(database: Database, tmp_path: Path) -> None:
    bench = Bench(MemoryDestination(config(max_attempts=2), database), tmp_path / "stage")
    bench.deliver("C0.1 CC0.3@0.1")
    database.refuse({"D"})
    bench.deliver("D0.1^0.3")
    bench.deliver("CC0.4@0.1 D0.2^0.4")
    assert (bench.counts["failed"], [each.group for each in bench.waiting]) == (0, ["hub1\x1fD"])
    bench.retry()
    assert (bench.counts["failed"], bench.waiting) == (1, [])
