"""``penstock log compact``: drops what newer records replaced, never what a route still needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.record import Record, entries
from tests.cli.projects import CONFIG, Project
from tests.engine.projects import commit

COUNT = 200


@pytest.fixture
def changing(tmp_path: Path) -> Project:
    """200 records of 10 keys in small segments; ``warehouse`` is done with all of them, ``audit`` has not begun."""
    project = Project(tmp_path)
    project.config.write_text(CONFIG + "log: {segment_bytes: 4KB}\n")
    pipeline = project.open()
    with pipeline.log.writer("web") as writer:
        for n in range(0, COUNT, 4):
            batch = entries(Record(b'{"n": %d}' % k, "web", key=f"k{k % 10}") for k in range(n, n + 4))
            writer.append(batch)
    for route in ("warehouse", "audit"):
        pipeline.ledger.open_route(route, {0: 0})
    done(project, "warehouse", COUNT)
    pipeline.ledger.close()
    return project


def done(project: Project, route: str, end: int) -> None:
    pipeline = project.open()
    commit(pipeline, route, 0, end)
    pipeline.log.holds.set(route, {0: end})
    pipeline.ledger.close()


def offsets(project: Project) -> list[int]:
    lines = project.penstock("log", "show", "0..", "--json").out.splitlines()
    return [json.loads(line)["offset"] for line in lines]


def test_a_route_that_has_committed_nothing_holds_everything_and_is_named(changing: Project) -> None:
    ran = changing.penstock("log", "compact", "--yes")
    assert ran.code == 0
    assert "partition 0: offsets from 0 on are held by audit" in ran.err
    assert len(offsets(changing)) == COUNT


def test_what_a_route_that_never_ran_has_acknowledged_is_held_no_more(changing: Project) -> None:
    assert changing.penstock("offset", "ack", "audit", "0..119", "--partition", "0").code == 0
    [report] = json.loads(changing.penstock("log", "compact", "--yes", "--json").out)
    assert (report["floor"], report["held_by"]) == (120, ["audit"])


def test_what_all_routes_are_done_with_is_compacted(changing: Project) -> None:
    done(changing, "audit", 120)
    [report] = json.loads(changing.penstock("log", "compact", "--yes", "--json").out)
    assert (report["floor"], report["held_by"], report["source"]) == (120, ["audit"], "web")
    left = offsets(changing)
    assert report["dropped"] == COUNT - len(left) > 80
    assert [n for n in left if n >= 120] == list(range(120, COUNT))
    assert report["bytes_after"] < report["bytes_before"] / 5


def test_the_newest_of_each_key_is_shown_afterwards(changing: Project) -> None:
    done(changing, "audit", COUNT)
    ran = changing.penstock("log", "compact", "--yes")
    assert ran.code == 0
    assert "held" not in ran.err
    oldest = json.loads(changing.penstock("log", "oldest", "--json").out)[0]["oldest"]
    assert oldest == offsets(changing)[0] >= COUNT - 80
    assert set(range(COUNT - 10, COUNT)) <= set(offsets(changing))
    current = json.loads(changing.penstock("log", "current", "--json").out)[0]
    assert (current["current"], current["next"]) == (COUNT - 1, COUNT)


def nameless(project: Project) -> None:
    """Add 40 events without a key, which all routes are done with."""
    pipeline = project.open()
    with pipeline.log.writer("web") as writer:
        for n in range(COUNT, COUNT + 40):
            writer.append(entries([Record(b'{"n": %d}' % n, "clicks")]))
    pipeline.ledger.close()
    for route in ("warehouse", "audit"):
        done(project, route, COUNT + 40)


def test_a_dry_run_says_by_namespace_what_would_go_and_changes_nothing(changing: Project) -> None:
    nameless(changing)
    before = offsets(changing)
    [report] = json.loads(changing.penstock("log", "compact", "--dry-run", "--json").out)
    assert offsets(changing) == before
    keyed, clicks = sorted(report["namespaces"], key=lambda each: each["namespace"] != "web")
    assert (keyed["namespace"], keyed["dropped"], keyed["without_key"]) == ("web", COUNT - 10, 0)
    assert clicks["namespace"] == "clicks"
    assert 20 < clicks["dropped"] == clicks["without_key"] < 40
    said = changing.penstock("log", "compact", "--dry-run").out
    assert f"clicks: {clicks['dropped']} records, {clicks['dropped']} without a key of their own" in said
    [done_then] = json.loads(changing.penstock("log", "compact", "--yes", "--json").out)
    assert done_then["dropped"] == report["dropped"] == len(before) - len(offsets(changing))
    assert changing.penstock("log", "compact", "--dry-run").out == ""


@pytest.mark.parametrize(("answer", "compacted"), [("y\n", True), ("n\n", False), (None, False)])
def test_it_asks_first_and_tells_what_would_go(changing: Project, answer: str | None, compacted: bool) -> None:
    nameless(changing)
    ran = changing.penstock("log", "compact", "--json", answer=answer)
    assert "without a key of their own: keeps only the newest of those" in ran.err
    assert "records for good?" in ran.err
    assert (ran.code == 0) == (len(offsets(changing)) < COUNT) == bool(ran.out) == compacted


def test_it_does_not_ask_where_nothing_goes(changing: Project) -> None:
    ran = changing.penstock("log", "compact")
    assert ran.code == 0
    assert "?" not in ran.err


def test_a_pipeline_that_never_ran_has_nothing_to_compact(fresh: Project) -> None:
    ran = fresh.penstock("log", "compact")
    assert ran.code == 1
    assert "PEN-ENG-004" in ran.err


def test_a_partition_that_is_not_there_is_refused(changing: Project) -> None:
    assert changing.penstock("log", "compact", "-p", "9").code == 2


def test_a_route_is_not_moved_back_to_where_nothing_is_left(changing: Project) -> None:
    done(changing, "audit", COUNT)
    changing.penstock("log", "compact", "--yes")
    first = offsets(changing)[0]
    assert first > 100
    shown = changing.penstock("log", "show", "5", "--partition", "0")
    assert f"partition 0 holds {first}..{COUNT - 1}" in shown.err
    moved = changing.penstock("offset", "rewind", "audit", "--to", "100", "--partition", "0", "--yes")
    assert moved.code != 0
    assert f"it begins at {first}" in moved.err
