"""A route that left the config keeps its place, is shown, and holds its part of the log until it is dropped."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.engine.delivery.route_positions import positions
from penstock.engine.history.left_routes import drop, left_route
from penstock.engine.ledger import Settlement
from penstock.engine.operate.status import status
from penstock.errors import PenstockError
from tests.engine.projects import TWO_ROUTES, append, commit, pipeline

ONE_LEFT = "\n".join(line for line in TWO_ROUTES.splitlines() if not line.startswith("  a:")) + "\n"


def left(folder: Path) -> int:
    """A route that has read 10 of 40 records, and is gone from the config."""
    opened = pipeline(folder)
    partition = append(opened, "web", [b'{"text": "%s"}' % (b"x" * 400)] * 40)
    for route in ("a", "b"):
        opened.ledger.open_route(route, {partition: 0})
        commit(opened, route, partition, 10 if route == "a" else 40)
    opened.ledger.close()
    return partition


def test_it_is_shown_with_what_it_has_not_read(tmp_path: Path) -> None:
    left(tmp_path)
    opened = pipeline(tmp_path, ONE_LEFT)
    shown = {route.route: (route.state, route.lag) for route in status(opened).routes}
    assert shown["a"] == ("not in the config", 30)
    assert [(each.committed, each.end) for each in positions(opened, "a")] == [(10, 40)]


def test_what_waits_in_its_steps_is_told_before_it_is_given_up(tmp_path: Path) -> None:
    partition = left(tmp_path)
    opened = pipeline(tmp_path)
    batch = opened.ledger.begin("a", {partition: (10, 40)})
    assert batch is not None
    opened.ledger.commit(batch, Settlement(30, 5, waiting=25, holds={partition: 12}))
    opened.ledger.close()
    told = left_route(pipeline(tmp_path, ONE_LEFT), "a")
    assert (told.lag, told.waiting, told.held) == (0, 0, 25)


def test_retention_keeps_what_it_has_not_read_until_it_is_dropped(tmp_path: Path) -> None:
    partition = left(tmp_path)
    opened = pipeline(tmp_path, ONE_LEFT)
    opened.log.apply_retention(opened.floors(), datetime.now(UTC))
    assert opened.log.bounds(partition).oldest <= 10
    drop(opened, "a")
    assert opened.floors()[partition] == 40
    assert opened.log.apply_retention(opened.floors(), datetime.now(UTC)) != []
    assert opened.log.bounds(partition).oldest > 10
    assert [route.route for route in status(opened).routes] == ["b"]


@pytest.mark.parametrize(("route", "code"), [("b", "PEN-ENG-073"), ("c", "PEN-ENG-074")])
def test_only_a_route_that_left_can_be_dropped(tmp_path: Path, route: str, code: str) -> None:
    left(tmp_path)
    with pytest.raises(PenstockError, match=code):
        drop(pipeline(tmp_path, ONE_LEFT), route)


def test_it_goes_on_where_it_was_when_it_comes_back(tmp_path: Path) -> None:
    partition = left(tmp_path)
    opened = pipeline(tmp_path, ONE_LEFT)
    opened.log.apply_retention(opened.floors(), datetime.now(UTC))
    opened.ledger.close()
    again = pipeline(tmp_path)
    assert again.ledger.offsets("a")[partition].committed == 10
    assert again.left_routes() == []
