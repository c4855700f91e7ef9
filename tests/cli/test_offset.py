"""``penstock offset``: where routes stand."""

from __future__ import annotations

import json

from tests.cli.projects import Project

STANDING = {
    "route": "warehouse",
    "partition": 0,
    "source": "web",
    "committed": 6,
    "hold": 6,
    "end": 8,
    "lag": 2,
    "held_bytes": 0,
}


def test_every_route_is_listed_also_one_that_has_not_begun(shop: Project) -> None:
    assert json.loads(shop.penstock("offset", "list", "--json").out) == [
        STANDING,
        {**STANDING, "route": "audit", "committed": 0, "hold": 0, "lag": 8, "held_bytes": 0},
    ]


def test_a_route_shows_its_offsets_and_newest_batches(shop: Project) -> None:
    shown = json.loads(shop.penstock("offset", "show", "warehouse", "--json").out)
    assert shown["offsets"] == [STANDING]
    assert [(b["number"], b["ranges"], b["failed"]) for b in shown["batches"]] == [
        (2, {"0": [3, 6]}, 2),
        (1, {"0": [0, 3]}, 0),
    ]


def test_people_see_the_same(shop: Project) -> None:
    rows = [line.split() for line in shop.penstock("offset", "list").out.splitlines()]
    assert ["warehouse", "0", "web", "6", "6", "8", "2"] in rows
    assert "0: 3..5" in shop.penstock("offset", "show", "warehouse").out


def test_an_unknown_route_is_named_with_the_known_ones(shop: Project) -> None:
    ran = shop.penstock("offset", "show", "nowhere")
    assert (ran.code, ran.out) == (2, "")
    assert "PEN-ENG-005" in ran.err
    assert "warehouse, audit" in ran.err
