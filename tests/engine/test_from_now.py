"""``penstock run --from now``: routes without a history begin after all that is in the log."""

from __future__ import annotations

from pathlib import Path

from penstock.engine.history.takeover import start_at_end
from tests.engine.copies import ONE_ROUTE, OPERATOR, Site

SECOND = """\
  b:
    from: web
    to: {type: duckdb, path: ./warehouse.duckdb, table: others}
"""


def from_now(site: Site) -> list[str]:
    pipeline = site.open()
    try:
        return start_at_end(pipeline, OPERATOR)
    finally:
        pipeline.ledger.close()


def test_a_new_route_delivers_what_comes_from_now_on_and_one_with_a_past_misses_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.append(range(5))
    assert site.deliver() == ""
    site.append(range(5, 8))
    site.write(ONE_ROUTE + SECOND)

    assert from_now(site) == ["b"]
    site.append([20])
    assert (site.deliver("a"), site.deliver("b")) == ("", "")

    assert site.rows() == [0, 1, 2, 3, 4, 5, 6, 7, 20]
    assert site.rows("others") == [20]
    assert site.totals("b") == (1, 1, 0, 0)


def test_after_a_lost_ledger_nothing_that_was_delivered_comes_again(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.append(range(5))
    assert site.deliver() == ""
    for path in site.data.glob("ledger.db*"):
        path.unlink()
    site.append([5])
    assert "--from now" in site.deliver(), "it says that this is a way to go on"

    assert from_now(site) == ["a"]
    site.append([20])
    assert site.deliver() == ""
    assert site.rows() == [0, 1, 2, 3, 4, 20]


def test_asked_twice_it_moves_nobody(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.append(range(5))
    assert from_now(site) == ["a"]
    site.append([20])
    assert from_now(site) == []
    assert site.deliver() == ""
    assert site.rows() == [20]
