"""``penstock failed``: find, read, replay and drop what could not be delivered."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from penstock.cli._support.screen import moment
from penstock.cli._support.times import time_since
from penstock.cli.failed import entry_line
from penstock.engine.route_sources import replay_source
from penstock.record import records
from tests.cli.projects import Project


def ids(project: Project, *words: str) -> list[int]:
    ran = project.penstock("failed", "list", *words, "--json")
    assert ran.code == 0
    return [json.loads(line)["id"] for line in ran.out.splitlines()]


def replayed_data(project: Project) -> list[bytes | None]:
    pipeline = project.open()
    found = [
        record.data
        for partition in pipeline.log.partitions([replay_source("warehouse")])
        for batch in pipeline.log.read(partition, 0)
        for record in records(batch)
    ]
    pipeline.ledger.close()
    return found


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], [0, 1]),
        (["--route", "warehouse"], [0, 1]),
        (["--route", "audit"], []),
        (["--step", "pick"], [1]),
        (["--code", "not_json"], [0]),
        (["--step", "pick", "--code", "not_json"], []),
        (["--since", "1h"], [0, 1]),
        (["--since", "2999-01-01"], []),
        (["--until", "2999-01-01"], [0, 1]),
        (["--since", "2h", "--until", "1h"], []),
        (["--limit", "1"], [0]),
    ],
)
def test_open_entries_are_found_by_what_they_have(shop: Project, words: list[str], expected: list[int]) -> None:
    assert ids(shop, *words) == expected


def test_an_entry_keeps_the_reason_and_the_record(shop: Project) -> None:
    entry = json.loads(shop.penstock("failed", "show", "warehouse", "0", "--json").out)
    assert (entry["step"], entry["code"], entry["error"]) == ("where", "not_json", "this is not JSON: nonsense")
    assert (entry["record"]["offset"], entry["record"]["data"], entry["settled"]) == (3, "nonsense", None)


def test_people_see_the_same_and_nothing_that_steers_the_terminal(shop: Project) -> None:
    listed = shop.penstock("failed", "list")
    assert "this is not JSON: nonsense" in listed.out
    assert "2 entries open" in listed.err
    shown = shop.penstock("failed", "show", "warehouse", "1").out
    assert "path_blocked" in shown
    assert "\\x1b[2J" in shown
    assert "\x1b" not in shown


def test_a_replay_puts_records_into_the_log_once(shop: Project) -> None:
    ran = shop.penstock("failed", "replay", "--route", "warehouse", "--json")
    assert (ran.code, json.loads(ran.out)) == (0, {"replayed": 2, "routes": {"warehouse": 2}})
    again = shop.penstock("failed", "replay", "--route", "warehouse")
    assert (again.code, again.out) == (0, "")
    assert replayed_data(shop) == [b"nonsense", b'{"note": "\x1b[2J"']
    assert ids(shop) == []
    assert json.loads(shop.penstock("failed", "show", "warehouse", "0", "--json").out)["settled"] == "replayed"


def test_a_replay_of_chosen_entries_leaves_the_others_open(shop: Project) -> None:
    assert shop.penstock("failed", "replay", "1", "7", "--route", "warehouse").err.count("left alone: 7") == 1
    assert ids(shop) == [0]
    assert shop.penstock("failed", "replay", "--all").out == "warehouse: 1 entry replayed\n"
    assert ids(shop) == []


def test_a_second_replay_at_the_same_time_is_refused_with_the_reason(shop: Project) -> None:
    pipeline = shop.open()
    with pipeline.log.writer(replay_source("warehouse")):
        for verb in (["replay"], ["drop", "--yes"]):
            ran = shop.penstock("failed", *verb, "--all")
            assert ran.code == 1
            assert "PEN-LOG-001" in ran.err
    pipeline.ledger.close()
    assert ids(shop) == [0, 1]


def test_dropped_entries_are_gone_for_good(shop: Project) -> None:
    assert shop.penstock("failed", "drop", "0", "--route", "warehouse", "--yes").out == "warehouse: 1 entry dropped\n"
    assert ids(shop) == [1]
    assert shop.penstock("failed", "replay", "--all").code == 0
    assert replayed_data(shop) == [b'{"note": "\x1b[2J"']


@pytest.mark.parametrize(("answer", "left"), [("n\n", [0, 1]), ("y\n", []), ("", [0, 1])])
def test_a_drop_asks_first(shop: Project, answer: str, left: list[int]) -> None:
    ran = shop.penstock("failed", "drop", "--all", "--json", answer=answer)
    assert ran.code == (0 if not left else 1)
    assert "Drop 2 entries" in ran.err
    assert ids(shop) == left


@pytest.mark.parametrize("verb", ["replay", "drop"])
@pytest.mark.parametrize("words", [[], ["3"], ["--since", "yesterday"], ["--route", "nowhere"]])
def test_a_change_of_everything_is_never_a_word_left_out(shop: Project, verb: str, words: list[str]) -> None:
    ran = shop.penstock("failed", verb, *words)
    assert ran.code == 2
    assert ran.err
    assert ids(shop) == [0, 1]


def test_an_entry_that_is_not_there(shop: Project) -> None:
    ran = shop.penstock("failed", "show", "warehouse", "9")
    assert ran.code == 2
    assert "no failed entry 9" in ran.err


def test_times_are_ago_or_absolute() -> None:
    assert abs(time_since("2h") - (datetime.now(UTC) - timedelta(hours=2))) < timedelta(minutes=1)
    assert time_since("2026-01-31T12:00") == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert time_since("2026-01-31T12:00+02:00") == datetime(2026, 1, 31, 10, tzinfo=UTC)
    with pytest.raises(ValueError, match="yesterday"):
        time_since("yesterday")


def test_entries_of_several_routes_stand_in_columns(shop: Project) -> None:
    pipeline = shop.open()
    entry = next(pipeline.failed_store.read("warehouse", pipeline.ledger.failed_extent("warehouse")))
    pipeline.ledger.close()
    lines = [entry_line(each, 9) for each in (entry, replace(entry, route="audit"))]
    assert len({line.index(moment(entry.failed_at)) for line in lines}) == 1


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("load: mirror", "route 'warehouse' mirrors tables"),
        (
            "primary_key: [id]",
            "route 'warehouse' has a key and no version_column: what is replayed is put over what came",
        ),
    ],
)
def test_a_replay_says_what_it_may_undo(shop: Project, to: str, said: str) -> None:
    text = shop.config.read_text().replace(
        "{type: file, path: ./out, format: ndjson}", f"{{type: duckdb, path: ./w, {to}}}"
    )
    shop.config.write_text(text)
    ran = shop.penstock("failed", "replay", "--all")
    assert ran.code == 0
    assert said in ran.err


def test_only_what_is_open_is_said_to_wait_for_someone(shop: Project) -> None:
    assert "2 failed and neither replayed nor dropped" in shop.penstock("status").out
    shop.penstock("failed", "replay", "0", "--route", "warehouse")
    assert "1 failed and neither" in shop.penstock("status").out
    shop.penstock("failed", "drop", "--all", "--yes")
    assert "failed list" not in shop.penstock("status").out
    warehouse, _ = json.loads(shop.penstock("status", "--json").out)["routes"]
    assert (warehouse["failed"], warehouse["failed_open"]) == (2, 0)


def test_a_short_list_says_how_many_there_are_in_all(shop: Project) -> None:
    limited = shop.penstock("failed", "list", "--limit", "1")
    assert limited.err == "2 entries open, the first 1 shown\n"
    assert shop.penstock("failed", "list", "--limit", "2").err == "2 entries open\n"
    assert shop.penstock("failed", "list", "--limit", "1", "--step", "pick").err == "1 entry open\n"
    machines = shop.penstock("failed", "list", "--limit", "1", "--json")
    assert (len(machines.out.splitlines()), machines.err) == (1, limited.err)
