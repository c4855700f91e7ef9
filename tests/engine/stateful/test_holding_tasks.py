"""Scan, decide and release, as tasks do them: every row is counted, whatever fails, moves or is lost."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.route_sources import control_source, replay_source
from penstock.engine.stateful import shard_home
from penstock.engine.stateful.control_records import release_record
from penstock.engine.stateful.shards import SHARDS, release_tasks, shard_numbers
from penstock.record import Header, Record
from tests.engine.stateful.in_process import HoldingRoute, record

GATHER = {"gather": {"key": "k", "until": "done", "at_most": "10s"}}
DEDUPE = {"dedupe": {"key": ["k"], "window": "1h"}}


@pytest.fixture(autouse=True)
def no_state_of_others() -> Iterator[None]:
    shard_home._memories.clear()
    yield
    shard_home._memories.clear()


def numbers(rows: list[dict[str, object]]) -> list[object]:
    return sorted(row["n"] for row in rows)  # type: ignore[type-var]


def test_shards_are_spread_over_tasks_one_each() -> None:
    """Spark's own hash says so: `hash(0)` is 933211791, `hash(1)` is -559580957, and so on."""
    known = {0: 933211791, 1: -559580957, 2: 1765031574, 3: -1823081949}
    found = shard_numbers()
    assert len(set(found)) == SHARDS
    assert all(number not in known or known[number] % SHARDS == task for task, number in enumerate(found))


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 64])
def test_tasks_that_release_are_no_more_than_cores_and_get_alike(cores: int) -> None:
    tasks = release_tasks(cores)
    assert tasks <= cores
    assert set(Counter(number % tasks for number in range(SHARDS)).values()) == {SHARDS // tasks}


def test_duplicates_are_skipped_over_batches_and_what_has_no_key_goes_on(tmp_path: Path) -> None:
    route = HoldingRoute(tmp_path, [DEDUPE])
    first = route.run(route.append("web", record(1, k="a"), record(2, k="b"), record(3, k="a"), record(4)))
    assert numbers(first.rows) == [1, 2, 4]
    route.move_to_another_worker()
    second = route.run(route.append("web", record(5, k="b"), record(6, k="c"), record(7, k=None)))
    assert numbers(second.rows) == [6, 7]
    assert dict(second.report.skipped) == {"dedupe": 1}
    assert (first.report.waiting, dict(first.report.holds)) == (0, {})


def test_a_group_goes_on_together_and_the_hold_follows(tmp_path: Path) -> None:
    route = HoldingRoute(tmp_path, [{"where": "n > 0"}, GATHER, {"set": {"late": "true"}}])
    first = route.run(route.append("web", record(0, k=1), record(1, k=1), record(2, k=2), record(3, k=1)))
    assert (first.rows, first.report.waiting, dict(first.report.holds)) == ([], 3, {0: 1})
    second = route.run(route.append("web", record(4, k=1.0, done=True), record(5, k=1)))
    assert numbers(second.rows) == [1, 3, 4]
    assert all(row["late"] is True for row in second.rows)
    assert (second.report.waiting, second.report.waiting_in_all) == (-1, 2)
    assert dict(second.report.holds) == {0: 2}
    assert second.report.items == 2


def test_ticks_let_go_of_what_has_waited_long_enough(tmp_path: Path) -> None:
    route = HoldingRoute(tmp_path, [GATHER])
    route.run(route.append("web", record(1, k=1)))

    def tick(second: int) -> list[object]:
        at = Record(None, "tick").timestamp.replace(year=2030, hour=0, minute=0, second=second, microsecond=0)
        ran = route.run(route.append(control_source("out"), Record(None, "tick", timestamp=at)))
        assert (ran.report.items, ran.report.shards) == (0, SHARDS)
        return numbers(ran.rows)

    assert tick(20) == []
    assert tick(29) == []
    assert tick(30) == [1]
    assert tick(50) == []


def test_a_release_lets_go_of_what_waits_up_to_its_point(tmp_path: Path) -> None:
    route = HoldingRoute(tmp_path, [GATHER])
    route.run(route.append("web", record(1, k=1), record(2, k=2)))
    point = route.log.reader(0).published_end().stamp
    route.run(route.append("web", record(3, k=1), record(4, k=3), record(5, k=4)))
    control = route.append(control_source("out"), release_record(point, 0), Record(None, "of a later Penstock"))
    route.move_to_another_worker()
    ran = route.run(control)
    assert (ran.report.items, ran.report.shards) == (0, SHARDS)
    assert numbers(ran.rows) == [1, 2, 3]
    assert (ran.report.waiting, ran.report.waiting_in_all, dict(ran.report.holds)) == (-3, 2, {0: 3})
    route.move_to_another_worker()
    assert route.run(control).rows == []


def test_replayed_records_go_on_at_once(tmp_path: Path) -> None:
    for steps in ([DEDUPE], [GATHER]):
        route = HoldingRoute(tmp_path / str(len(str(steps))), steps)
        route.run(route.append("web", record(1, k=1)))
        again = route.run(route.append(replay_source("out"), record(1, k=1)))
        assert numbers(again.rows) == [1]


def test_other_namespaces_pass(tmp_path: Path) -> None:
    route = HoldingRoute(tmp_path, [{"dedupe": {"key": "k", "window": "1h", "namespace": "^web$"}}])
    twice = [Record(b'{"n": 1, "k": 1}', namespace=name) for name in ("web", "web", "app", "app")]
    ran = route.run(route.append("web", *twice))
    assert numbers(ran.rows) == [1, 1, 1]


def test_rows_that_a_step_made_of_one_record_wait_each_by_itself(tmp_path: Path) -> None:
    gather = {"gather": {"key": "r.k", "until": "r.done", "at_most": "1h"}}
    route = HoldingRoute(tmp_path, [{"split": "r"}, gather])

    def run(text: bytes) -> tuple[list[object], BatchReport]:
        ran = route.run(route.append("web", Record(text, namespace="web")))
        return numbers([row["r"] for row in ran.rows]), ran.report

    rows, first = run(b'{"r": [{"n": 1, "k": 1}, {"n": 2, "k": 2}, {"n": 3, "k": 1}]}')
    assert (rows, first.waiting, dict(first.added), first.items) == ([], 3, {"split": 2}, 1)
    rows, second = run(b'{"r": [{"n": 4, "k": 1, "done": true}]}')
    assert (rows, dict(second.added), second.waiting) == ([1, 3, 4], {}, -2)
    assert run(b'{"r": [{"n": 5, "k": 2, "done": true}]}')[0] == [2, 5]


def test_what_the_log_has_lost_is_named_as_failed(tmp_path: Path) -> None:
    route = HoldingRoute(tmp_path, [GATHER])
    gone = route.append("web", record(1, k=1))
    route.run(gone)
    there = route.append("app", record(2, k=1, done=True))
    shutil.rmtree(route.log.partition_dir(gone.partition))
    ran = route.run(there)
    assert numbers(ran.rows) == [2]
    found = [(kept.record.partition, kept.record.offset, kept.record.data, kept.code) for kept in ran.failed]
    assert found == [(gone.partition, 0, None, "lost")]


def test_what_the_steps_before_no_longer_let_through_is_kept_as_failed(tmp_path: Path) -> None:
    route = HoldingRoute(tmp_path, [{"where": "n > 0"}, GATHER])
    route.run(route.append("web", record(1, k=1), record(2, k=1)))
    changed = HoldingRoute(tmp_path, [{"where": "n > 1"}, GATHER])
    changed.store = route.store
    ran = changed.run(changed.append("web", record(3, k=1, done=True)))
    assert numbers(ran.rows) == [2, 3]
    (kept,) = ran.failed
    assert (kept.record.data, kept.code, kept.step) == (b'{"n": 1, "k": 1}', "lost", "gather")


def test_a_record_that_fails_behind_the_step_is_kept_as_it_was_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "def bad(frame):\n    return frame.assign(x=[1 / (d['n'] - 2) for d in frame.data])"
    )
    bad = {"python": {"file": str(tmp_path / "bad.py"), "function": "bad", "batch": "pandas"}}
    route = HoldingRoute(tmp_path, [{"set": {"x": "1"}}, GATHER, bad])
    ran = route.run(route.append("web", record(1, k=1), record(2, k=1), record(3, k=1, done=True)))
    assert numbers(ran.rows) == [1, 3]
    assert [kept.record.data for kept in ran.failed] == [b'{"n": 2, "k": 1}']


def test_items_that_fail_behind_the_step_are_replayed_alone_and_at_once(tmp_path: Path) -> None:
    gather = {"gather": {"key": "r.k", "until": "r.done", "at_most": "1h"}}
    route = HoldingRoute(tmp_path, [{"split": "r"}, gather, {"set": {"r.v.x": "1"}}])
    data = b'{"r": [{"n": 1, "k": 1, "v": 7}, {"n": 2, "k": 1}, {"n": 3, "k": 2}, {"n": 4, "k": 1, "done": true}]}'
    ran = route.run(route.append("web", Record(data, namespace="web")))
    assert numbers([row["r"] for row in ran.rows]) == [2, 4]
    assert [(kept.record.data, kept.item, kept.step) for kept in ran.failed] == [(data, 1, "set")]
    fixed = HoldingRoute(tmp_path, [{"split": "r"}, gather])
    fixed.store = route.store
    replayed = Record(data, "web", headers={Header.REPLAY_ITEM: "1"})
    ran = fixed.run(fixed.append(replay_source("out"), replayed))
    assert numbers([row["r"] for row in ran.rows]) == [1]
    assert (ran.report.waiting, ran.failed, ran.report.skipped) == (0, [], {"of_replayed": 3})
    without = HoldingRoute(tmp_path, [gather])
    without.store = route.store
    ran = without.run(without.append(replay_source("out"), replayed))
    assert (ran.rows, [(kept.item, kept.step, kept.code) for kept in ran.failed]) == ([], [(1, "replay", "lost")])


batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=8), st.sampled_from(["runs", "fails", "moves"])
    ),
    max_size=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(batches)
def test_a_task_that_fails_or_moves_decides_as_if_it_had_not(
    tmp_path_factory: pytest.TempPathFactory, taken: list[tuple[list[tuple[int, bool]], str]]
) -> None:
    shard_home._memories.clear()
    route = HoldingRoute(tmp_path_factory.mktemp("route"), [GATHER])
    waiting: dict[int, list[int]] = {}
    number = 0
    for rows, what in taken:
        come = []
        expected: list[int] = []
        for key, closes in rows:
            come.append(record(number, k=key, done=closes))
            waiting.setdefault(key, []).append(number)
            number += 1
            if closes:
                expected += waiting.pop(key)
        if not come:
            continue
        stretch = route.append("web", *come)
        if what == "fails":
            before = route.store.copy()
            route.run(stretch)
            route.store = before
        elif what == "moves":
            route.move_to_another_worker()
        ran = route.run(stretch)
        assert numbers(ran.rows) == sorted(expected)
        assert ran.report.waiting_in_all == sum(map(len, waiting.values()))
        lowest = min((own[0] for own in waiting.values()), default=None)
        assert dict(ran.report.holds) == ({} if lowest is None else {0: lowest})
