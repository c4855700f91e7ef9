"""The sample cases of conflation over log, ledger and a real database, as a route delivers them, but for Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from subprocess import PIPE
from threading import Event
from typing import Any

import duckdb
import pytest

from penstock.conflation.tally import Tally
from penstock.destinations.state.destination import StateDestination
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.item_staging import stage_items
from penstock.engine.delivery.task import run_task
from penstock.engine.delivery.task_report import add_up
from penstock.engine.history.target_position import return_to_position
from penstock.engine.ledger import Operator, Totals
from penstock.engine.operate.conflated_routes import conflation_status, forget_source, pending_bundles
from penstock.engine.operate.offset_control import plan_rewind, rewind
from penstock.engine.retry_lane.postponed_retrier import PostponedRetrier
from penstock.errors import PenstockError, TargetWentBackError
from penstock.log.read_ranges import Stretch
from penstock.record import entries
from penstock.testing.crash import crash_at
from penstock.testing.waiting import eventually
from tests.conflation.samples import bundle
from tests.destinations.state.bundles import KINDS, items, record
from tests.engine.projects import pipeline
from tests.support.database import Database

CONFIG = """\
name: fleet
sources: {hubs: {type: file, path: ./hubs.ndjson}}
routes: {state: {from: hubs, to: {type: state, PLACE, kinds: KINDS}}}
"""

Ask = Callable[[str], list[tuple[Any, ...]]]


class Route:
    def __init__(self, folder: Path, place: str, ask: Ask) -> None:
        self.opened = pipeline(folder, CONFIG.replace("PLACE", place).replace("KINDS", json.dumps(KINDS)))
        self.ask = ask
        self.read = 0
        self.restart()

    def restart(self) -> None:
        """As after a crash: nothing is left in memory."""
        found = self.opened.plan("state").destination()
        assert isinstance(found, StateDestination)
        self.destination = found

    def append(self, text: str, source: str = "hub1", data: object = None) -> None:
        writer = self.opened.log.writer("hubs")
        writer.append(entries(record(bundle(word, 0, source), data) for word in text.split()))
        writer.close()

    def deliver(self, text: str = "", source: str = "hub1", data: object = None) -> None:
        """A batch of all that is new, and of these bundles; then what it has woken."""
        if text:
            self.append(text, source, data)
        plan, log, ledger = self.opened.plan("state"), self.opened.log, self.opened.ledger
        ledger.open_route("state", {0: 0})
        start, end = self.read, log.bounds(0).end
        report = add_up([run_task(plan, log.read(0, start, end), Stretch(0, start, end))])
        self.delivery.deliver(report)
        self.read = end
        self.retry()

    def retry(self) -> None:
        stage = partial(stage_items, self.opened.plan("state"), self.opened.log)
        PostponedRetrier(self.delivery, stage).retry_due()

    @property
    def delivery(self) -> Delivery:
        opened = self.opened
        plan = opened.plan("state")
        return Delivery(plan, self.destination, opened.log, opened.ledger, opened.failed_store, Event())

    @property
    def totals(self) -> Totals:
        return self.opened.ledger.totals("state")

    @property
    def hold(self) -> int:
        return self.opened.ledger.offsets("state")[0].hold

    @property
    def position(self) -> int:
        found = self.destination.position("state")
        assert found is not None
        return found[0].needs

    @property
    def versions(self) -> dict[str, str]:
        query = "SELECT kind, incarnation, generation FROM penstock_versions WHERE source = 'hub1'"
        return {kind: f"{incarnation}.{generation}" for kind, incarnation, generation in self.ask(query)}

    def tally(self, kind: str) -> Tally:
        return Tally.of(self.opened.ledger.tallies("state").get(f"hub1\x1f{kind}", {}))


@pytest.fixture(params=["duckdb", "postgres"])
def route(request: pytest.FixtureRequest, tmp_path: Path) -> Route:
    if request.param == "postgres":
        database: Database = request.getfixturevalue("database")
        return Route(tmp_path, f"url: '{database.dsn}', database_schema: {database.schema}", database.ask)
    path = tmp_path / "state.duckdb"

    def ask(query: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(path) as connection:
            return connection.execute(query).fetchall()

    return Route(tmp_path, "path: ./state.duckdb", ask)


def test_the_newest_of_a_batch_is_written_once(route: Route) -> None:
    route.deliver("A0.1 A0.2 A0.3")
    assert route.ask("SELECT source, v FROM a") == [("hub1", "0.3")]
    assert route.totals == Totals(items=3, loaded=1, skipped=2)
    tally = route.tally("A")
    assert (tally["received"], tally["conflated"], tally["written"], tally["rows_inserted"]) == (3, 2, 1, 1)
    assert tally.delay(1.0) is not None


def test_a_bundle_waits_for_the_version_that_it_names_and_then_follows_at_once(route: Route) -> None:
    route.deliver("CC0.7@0.2")
    route.deliver("C0.1")
    assert (route.versions, route.totals.waiting, route.hold, route.position) == ({"C": "0.1"}, 1, 0, 0)
    assert [each.reason for each in pending_bundles(route.opened)] == ["waits for C 0.2; 0.1 is there"]
    route.deliver("C0.2")
    assert (route.versions, route.totals) == ({"C": "0.2", "CC": "0.7"}, Totals(items=3, loaded=3))
    assert (route.hold, route.position) == (3, 3)


def test_what_waits_is_replaced_by_a_newer_one_and_counted(route: Route) -> None:
    route.deliver("CC0.7@0.2")
    route.deliver("CC0.8@0.3 A0.1")
    assert route.totals == Totals(items=3, loaded=1, skipped=1, waiting=1)
    assert (route.versions, route.hold, route.tally("CC")["conflated"]) == ({"A": "0.1"}, 1, 1)


def test_versions_never_go_back_and_a_restarted_producer_is_accepted(route: Route) -> None:
    for text, version in [("A0.5", "0.5"), ("A0.5", "0.5"), ("A0.4", "0.5"), ("A1.0", "1.0")]:
        route.deliver(text)
        assert route.versions == {"A": version}
    assert route.totals == Totals(items=4, loaded=2, skipped=2)


def test_deltas_count_on_the_newest_base_only(route: Route) -> None:
    route.deliver("C0.1 CC0.3@0.1")
    route.deliver("D0.1^0.4")
    route.deliver("D0.2^0.5")
    route.deliver("CC0.5@0.1")
    assert route.versions == {"C": "0.1", "CC": "0.5", "D": "0.2"}
    assert route.totals == Totals(items=5, loaded=4, skipped=1)


def test_deltas_that_waited_are_merged_and_the_newer_wins(route: Route) -> None:
    route.deliver("CC0.3@0.1", data=items({"id": "a", "v": 0}, {"id": "b", "v": 0}))
    route.deliver("D0.1^0.3", data=items({"id": "a", "v": 1}, {"id": "c", "v": 1}))
    route.deliver("D0.2^0.3", data=items({"id": "c", "v": 2}))
    assert (route.position, route.totals.waiting) == (0, 3)
    route.deliver("C0.1")
    route.retry()
    assert sorted(route.ask("SELECT id, v FROM cc")) == [("a", 1), ("b", 0), ("c", 2)]
    assert (route.position, route.totals) == (4, Totals(items=4, loaded=4))


def test_a_retry_moves_the_position_also_right_after_a_restart(route: Route) -> None:
    route.deliver("CC0.7@0.2 A0.1")
    route.append("C0.2")
    with crash_at("postponed.begun"):
        route.deliver()
    route.restart()
    route.retry()
    assert (route.versions["CC"], route.hold, route.position) == ("0.7", 3, 3)


def test_what_is_pending_holds_the_position_back(route: Route) -> None:
    route.deliver("A0.1")
    route.deliver("CC0.7@0.2")
    route.deliver("A0.2 A0.3")
    assert route.position == route.hold == 1


@pytest.mark.parametrize("point", ["destination.writing", "destination.committed", "route.before_ledger_commit"])
def test_after_a_crash_the_tables_are_right_and_nothing_is_written_twice(route: Route, point: str) -> None:
    route.deliver("A0.1")
    route.append("A0.2 C0.1 CC0.1@0.1")
    route.append("A0.1", "hub2")
    with crash_at(point):
        route.deliver()
    route.restart()
    route.deliver()
    assert route.versions == {"A": "0.2", "C": "0.1", "CC": "0.1"}
    assert route.totals == Totals(items=5, loaded=5)
    assert sorted(route.ask("SELECT source, v FROM a")) == [("hub1", "0.2"), ("hub2", "0.1")]
    assert (route.tally("A")["received"], route.tally("A")["written"]) == (2, 2)


def test_data_that_are_no_rows_fail_and_what_depends_on_them_says_why(route: Route) -> None:
    route.append("C0.2", data={"items": [{"name": "no key"}]})
    route.deliver("CC0.7@0.2")
    assert route.totals == Totals(items=2, failed=1, waiting=1)
    (waits,) = pending_bundles(route.opened)
    assert waits.reason.startswith("waits for C 0.2; none is there; C 0.2 has failed:")
    route.restart()
    route.deliver("A0.1")
    (waits,) = pending_bundles(route.opened)
    assert "has failed" in waits.reason


def test_status_tells_what_became_of_every_bundle(route: Route) -> None:
    route.deliver("A0.1 A0.2 CC0.7@0.2")
    (status,) = conflation_status(route.opened)
    assert (status.position_lag, dict(status.active), status.unavailable) == (1, {"hub1": True}, None)
    kinds = {each.kind: each for each in status.kinds}
    assert (kinds["A"].version, kinds["A"].tally["conflated"], len(kinds["A"].pending)) == ("0.2", 1, 0)
    assert (kinds["CC"].version, [each.version for each in kinds["CC"].pending]) == (None, ["0.7"])


def test_a_forgotten_source_is_gone_and_comes_back_with_its_next_bundle(route: Route) -> None:
    route.deliver("A0.5")
    route.append("A0.7", "hub2")
    route.deliver("CC0.7@0.2")
    (done,) = forget_source(route.opened, "hub1")
    assert (done.rows, done.waiting) == (1, 1)
    assert route.ask("SELECT source FROM a") == [("hub2",)]
    assert (pending_bundles(route.opened), route.totals) == ([], Totals(items=3, loaded=2, skipped=1))
    assert route.hold == 3
    route.deliver("A0.1")
    assert route.versions == {"A": "0.1"}


@pytest.mark.parametrize("route", ["duckdb"], indirect=True)
def test_who_asks_waits_for_the_turn_of_the_engine(route: Route) -> None:
    route.deliver("A0.1")
    program = "import duckdb, sys; found = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"
    path = str(route.destination.config.path)
    with (
        subprocess.Popen([sys.executable, "-c", program, path], stdin=PIPE, stdout=PIPE) as other,
        ThreadPoolExecutor() as pool,
    ):
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdout.readline()
        asked = [pool.submit(conflation_status, route.opened), pool.submit(list, forget_source(route.opened, "hub1"))]
        assert not wait(asked, timeout=0.5).done
        other.stdin.close()
        ((status,), (done,)) = (each.result() for each in asked)
    assert status.unavailable is None
    assert done.rows == 1


def test_a_route_that_keeps_no_state_has_none_to_show(tmp_path: Path) -> None:
    text = 'name: shop\nsources: {web: {type: file, path: ./w}}\nroutes: {out: {from: web, to: {type: "null"}}}\n'
    with pytest.raises(PenstockError, match="no route keeps the state of sources"):
        conflation_status(pipeline(tmp_path, text))


def test_a_source_that_falls_silent_is_marked_though_nothing_comes(route: Route) -> None:
    route.deliver("A0.1")
    options = {"inactive_after": "1ms", "on_inactive": "mark"}
    config = route.destination.config
    silent = StateDestination(type(config).model_validate({**config.model_dump(), "kinds": KINDS, **options}))

    def active() -> dict[str, bool]:
        silent.look_after()
        (status,) = conflation_status(route.opened)
        return dict(status.active)

    eventually(lambda: active() == {"hub1": False}, "it is inactive")
    assert route.ask("SELECT count(*) FROM a WHERE _inactive_since IS NOT NULL") == [(1,)]
    route.deliver("A0.2")
    (status,) = conflation_status(route.opened)
    assert dict(status.active) == {"hub1": True}


@pytest.mark.parametrize("route", ["duckdb"], indirect=True)
@pytest.mark.parametrize(
    ("before", "after", "back_to", "versions"),
    [
        ("A0.1", "A0.2 C0.1 CC0.1@0.1", 1, {"A": "0.2", "C": "0.1", "CC": "0.1"}),
        # Both wait for the same, from the first record on.
        ("CC0.9@0.9 A0.1", "A0.2 C0.1", 0, {"A": "0.2", "C": "0.1"}),
        # There was no database.
        ("", "A0.2 C0.1", 0, {"A": "0.2", "C": "0.1"}),
    ],
)
def test_an_older_copy_of_the_database_gets_again_what_it_lacks(
    route: Route, before: str, after: str, back_to: int, versions: dict[str, str]
) -> None:
    path = route.destination.config.path
    assert path is not None
    if before:
        route.deliver(before)
    copy = {file: file.read_bytes() for file in path.parent.glob("state.duckdb*")}
    route.deliver(after)
    for file in path.parent.glob("state.duckdb*"):
        file.unlink()
    for file, content in copy.items():
        file.write_bytes(content)
    route.restart()
    opened = route.opened
    return_to_position(opened.ledger, opened.log, opened.plan("state"), route.destination)
    route.read = opened.ledger.offsets("state")[0].committed
    assert route.read == back_to
    route.deliver()
    assert route.versions == versions


@pytest.mark.parametrize("route", ["duckdb"], indirect=True)
def test_a_database_that_goes_back_before_the_first_batch_is_noticed(route: Route) -> None:
    path = route.destination.config.path
    assert path is not None
    route.deliver("A0.1")
    copy = {file: file.read_bytes() for file in path.parent.glob("state.duckdb*")}
    route.deliver("A0.2 C0.1")
    route.restart()
    opened = route.opened
    return_to_position(opened.ledger, opened.log, opened.plan("state"), route.destination)
    for file in path.parent.glob("state.duckdb*"):
        file.unlink()
    for file, content in copy.items():
        file.write_bytes(content)
    with pytest.raises(TargetWentBackError):
        route.deliver("C0.2")


@pytest.mark.parametrize("route", ["duckdb"], indirect=True)
def test_a_database_that_is_deleted_while_the_route_runs_is_made_again(route: Route) -> None:
    path = route.destination.config.path
    assert path is not None
    route.deliver("A0.1")
    route.deliver("C0.1")
    for file in path.parent.glob("state.duckdb*"):
        file.unlink()
    with pytest.raises(TargetWentBackError):
        route.deliver("A0.2")
    for file in path.parent.glob("state.duckdb*"):
        file.unlink()
    opened = route.opened
    return_to_position(opened.ledger, opened.log, opened.plan("state"), route.destination)
    route.read = opened.ledger.offsets("state")[0].committed
    assert route.read == 0
    route.deliver()
    assert route.versions == {"A": "0.2", "C": "0.1"}


@pytest.mark.parametrize("route", ["duckdb"], indirect=True)
@pytest.mark.parametrize("notices", ["the next batch", "nobody brings anything"])
def test_a_database_that_goes_back_while_the_route_runs_is_noticed_before_it_is_written(
    route: Route, notices: str
) -> None:
    path = route.destination.config.path
    assert path is not None
    route.deliver("A0.1")
    copy = {file: file.read_bytes() for file in path.parent.glob("state.duckdb*")}
    route.deliver("A0.2 C0.1")
    for file in path.parent.glob("state.duckdb*"):
        file.unlink()
    for file, content in copy.items():
        file.write_bytes(content)
    if notices == "the next batch":
        with pytest.raises(TargetWentBackError, match="stood at offset 3 of partition 0, and stands at 1"):
            route.deliver("C0.2")
    else:
        route.destination._check_every = 0.0
        with pytest.raises(TargetWentBackError, match="An older copy of it was put back"):
            route.destination.look_after()
    assert route.versions == {"A": "0.1"}
    opened = route.opened
    return_to_position(opened.ledger, opened.log, opened.plan("state"), route.destination)
    route.read = opened.ledger.offsets("state")[0].committed
    assert route.read == 1
    route.deliver()
    assert route.versions == {"A": "0.2", "C": "0.2" if notices == "the next batch" else "0.1"}
    assert route.totals.waiting == 0


def test_nothing_rests_on_rows_that_went_with_their_source(route: Route) -> None:
    route.deliver("A0.1")
    options = {"inactive_after": "1ms", "on_inactive": "delete"}
    config = route.destination.config
    silent = StateDestination(type(config).model_validate({**config.model_dump(), "kinds": KINDS, **options}))

    def is_empty() -> bool:
        silent.look_after()
        return route.ask("SELECT count(*) FROM a") == [(0,)]

    eventually(is_empty, "its rows are deleted")
    route.deliver("I0.1")
    assert (route.versions, route.totals.waiting) == ({"A": "0.1"}, 1)
    assert [each.reason for each in pending_bundles(route.opened)] == ["waits for any A of incarnation 0"]
    route.deliver("A0.1")
    assert (route.versions, route.totals.waiting) == ({"A": "0.1", "I": "0.1"}, 0)


def test_an_older_ledger_beside_a_newer_database_writes_nothing_again(route: Route) -> None:
    route.deliver("A0.1 C0.1")
    route.deliver("A0.2")
    opened = route.opened
    rewind(opened, plan_rewind(opened, "state", 0, 0), Operator("ada"))
    route.read = 0
    route.restart()
    route.deliver()
    assert (route.versions, route.tally("A")["rows_updated"]) == ({"A": "0.2", "C": "0.1"}, 1)
