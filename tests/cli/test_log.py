"""``penstock log``: records by offset, and where partitions begin and end."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli._support.offset_ranges import OffsetRange, parse_range
from penstock.record import Record, entries
from tests.cli.projects import BINARY, Project


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        (["1..3"], [1, 2, 3]),
        (["2"], [2]),
        (["6.."], [6, 7]),
        (["..1"], [0, 1]),
        (["..1", "--partition", "0"], [0, 1]),
        (["6..99"], [6, 7]),
        (["--last", "2"], [6, 7]),
        ([], list(range(8))),
        (["50..60"], []),
    ],
)
def test_a_range_includes_both_its_ends(shop: Project, words: list[str], offsets: list[int]) -> None:
    ran = shop.penstock("log", "show", *words, "--json")
    assert ran.code == 0
    assert [json.loads(line)["offset"] for line in ran.out.splitlines()] == offsets


def test_a_record_is_shown_with_everything_it_has(shop: Project) -> None:
    (line,) = shop.penstock("log", "show", "1", "--json").out.splitlines()
    assert json.loads(line) == {
        "partition": 0,
        "offset": 1,
        "timestamp": "2026-01-31T09:01:00+00:00",
        "namespace": "web",
        "op": "insert",
        "mode": "sync",
        "key": None,
        "headers": {"token": "site"},
        "data": '{"price": 15}',
    }


def test_a_line_for_people_has_place_time_mode_op_namespace_and_data(shop: Project) -> None:
    words = shop.penstock("log", "show", "1").out.split()
    assert words == ["0:1", "2026-01-31T09:01:00.000Z", "sync", "insert", "web", '{"price":', "15}"]


def test_in_a_pipe_a_record_is_one_line_however_long_it_is(shop: Project) -> None:
    long = b'{"words": "%s"}' % b" ".join([b"word"] * 200)
    with shop.open().log.writer("web") as writer:
        writer.append(entries([Record(long, "web")]))
    for words in (("log", "show", "8"), ("tap", "audit", "--oldest", "--no-follow")):
        (line,) = [line for line in shop.penstock(*words).out.splitlines() if line.startswith("0:8")]
        assert line.endswith(long.decode())
    assert len(shop.penstock("log", "show", "7..8").out.splitlines()) == 2


def test_data_that_is_no_text_is_shown_as_base64(shop: Project) -> None:
    encoded = base64.b64encode(BINARY).decode()
    assert f"base64:{encoded}" in shop.penstock("log", "show", "6").out
    assert json.loads(shop.penstock("log", "show", "6", "--json").out)["data_base64"] == encoded


def test_data_cannot_steer_the_terminal(shop: Project) -> None:
    out = shop.penstock("log", "show", "4").out
    assert "\x1b" not in out
    assert "\\x1b[2J" in out


def test_nothing_there_is_said_with_what_is(shop: Project) -> None:
    ran = shop.penstock("log", "show", "50..60")
    assert (ran.code, ran.out) == (0, "")
    assert "partition 0 holds 0..7" in ran.err


def test_current_and_oldest_name_the_ends(shop: Project) -> None:
    assert json.loads(shop.penstock("log", "current", "--json").out) == [
        {"partition": 0, "source": "web", "current": 7, "next": 8}
    ]
    assert json.loads(shop.penstock("log", "oldest", "--json").out) == [{"partition": 0, "source": "web", "oldest": 0}]
    assert "web" in shop.penstock("log", "current").out
    assert "web" in shop.penstock("log", "oldest").out


def test_a_log_that_was_never_written_is_empty(fresh: Project) -> None:
    assert json.loads(fresh.penstock("log", "current", "--json").out) == []
    ran = fresh.penstock("log", "show")
    assert (ran.code, ran.out) == (0, "")
    assert "the log is empty" in ran.err
    assert not (fresh.folder / "data").exists()


@pytest.mark.parametrize("words", [["show", "3..1"], ["show", "one"], ["show", "0", "-p", "9"], ["current", "-p", "9"]])
def test_what_cannot_be_meant_is_refused(shop: Project, words: list[str]) -> None:
    ran = shop.penstock("log", *words)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_a_range_reads_back_as_it_was_written(a: int, b: int) -> None:
    first, last = sorted((a, b))
    assert parse_range(f"{first}..{last}") == OffsetRange(first, last)
    assert parse_range(f"{first}..") == OffsetRange(first, None)
    assert parse_range(str(first)) == OffsetRange(first, first)


@given(st.text().filter(lambda text: not any(letter.isdigit() or letter == "." for letter in text)))
def test_text_without_an_offset_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 13\.\.15"):
        parse_range(text)
