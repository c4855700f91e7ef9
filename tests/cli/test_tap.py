"""``penstock tap``: records after a step."""

from __future__ import annotations

import json

import pytest

from tests.cli.projects import Project


@pytest.mark.parametrize(
    ("where", "data"),
    [
        ("warehouse:where", ['{"price": 15}', '{"price": 20}', '{"price": 30}', '{"price": 40}']),
        ("warehouse", ['{"price": 15}', '{"price": 20}', '{"price": 30}', '{"price": 40}']),
    ],
)
def test_records_are_shown_as_they_are_behind_a_step(shop: Project, where: str, data: list[str]) -> None:
    ran = shop.penstock("tap", where, "--oldest", "--no-follow", "--json")
    assert ran.code == 0
    shown = [json.loads(json.loads(line)["data"]) for line in ran.out.splitlines()]
    assert shown == [json.loads(each) for each in data]


def test_what_a_function_of_the_user_prints_stays_out_of_the_lines_for_machines(shop: Project) -> None:
    (shop.folder / "steps.py").write_text("def f(table):\n    print('hello')\n    return table\n")
    text = shop.config.read_text()
    shop.config.write_text(text.replace("- pick: [price]", "- python: {file: steps.py, function: f}"))
    ran = shop.penstock("tap", "warehouse", "--oldest", "--no-follow", "--json")
    assert ran.code == 0
    assert [json.loads(line)["namespace"] for line in ran.out.splitlines()] == ["web"] * 4
    assert "hello" in ran.err


def test_a_limit_ends_it(shop: Project) -> None:
    assert len(shop.penstock("tap", "audit", "--oldest", "--limit", "2", "--json").out.splitlines()) == 2


def test_without_oldest_it_begins_now(shop: Project) -> None:
    assert shop.penstock("tap", "audit", "--no-follow").out == ""


def test_it_moves_nothing(shop: Project) -> None:
    before = shop.penstock("offset", "list", "--json").out
    shop.penstock("tap", "warehouse", "--oldest", "--no-follow")
    assert shop.penstock("offset", "list", "--json").out == before


@pytest.mark.parametrize(("where", "known"), [("nowhere", "warehouse"), ("warehouse:nothing", "where, pick")])
def test_an_unknown_place_is_answered_with_the_known_ones(shop: Project, where: str, known: str) -> None:
    ran = shop.penstock("tap", where, "--no-follow")
    assert ran.code == 2
    assert known in ran.err
