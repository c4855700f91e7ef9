"""Which tables a route may write when records name them: its own, also after it was renamed or its ledger was lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.copies import ONE_ROUTE, Site

BY_RECORD = ONE_ROUTE.replace("table: events", 'table: "t{{ n % 2 }}"')


def renamed(name: str) -> str:
    return BY_RECORD.replace("  a:\n", f"  {name}:\n")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, BY_RECORD)


def test_a_route_keeps_its_tables_under_every_name_that_it_gets(site: Site) -> None:
    site.append(range(2))
    assert site.deliver() == ""
    for old, new, number in [("a", "b", 2), ("b", "c", 4), ("c", "a", 6)]:
        site.write(renamed(new))
        site.adopt(old, new)
        site.append(range(number, number + 2))
        assert site.deliver(new) == ""
        assert site.totals(new)[3] == 0
    assert (site.rows("t0"), site.rows("t1")) == ([0, 2, 4, 6], [1, 3, 5, 7])


def test_names_that_nothing_was_delivered_under_do_not_matter(site: Site) -> None:
    site.append(range(2))
    assert site.deliver() == ""
    for old, new in [("a", "b"), ("b", "c")]:
        site.write(renamed(new))
        site.adopt(old, new)
    site.append(range(2, 4))
    assert site.deliver("c") == ""
    assert (site.rows("t0"), site.rows("t1"), site.totals("c")[3]) == ([0, 2], [1, 3], 0)


def test_a_route_that_adopts_another_ledger_s_history_has_its_tables(site: Site) -> None:
    site.append(range(2))
    assert site.deliver() == ""
    (site.data / "ledger.db").unlink()
    site.write(renamed("b"))
    site.adopt("a", "b")
    site.append(range(2, 4))
    assert site.deliver("b") == ""
    assert (site.rows("t0"), site.rows("t1"), site.totals("b")[3]) == ([0, 2], [1, 3], 0)


@pytest.mark.parametrize("named", ["table: t0", 'table: "{{ x }}", tables: [t0]', 'table: "{{ x }}", adopt: [t0]'])
def test_a_table_that_another_route_names_is_not_free_for_records(site: Site, named: str) -> None:
    """Whoever names it first in a record would have it."""
    other = ONE_ROUTE.replace("  a:\n", "  b:\n").replace("table: events", named)
    site.write(BY_RECORD + other.split("routes:\n")[1])
    site.append(range(4))
    assert site.deliver("a") == ""
    assert (site.rows("t1"), site.totals("a")) == ([1, 3], (4, 2, 0, 2))


def test_one_that_another_route_names_at_another_place_is_free(site: Site) -> None:
    other = ONE_ROUTE.replace("  a:\n", "  b:\n").replace("table: events", "table: t0").replace("./warehouse", "./b")
    site.write(BY_RECORD + other.split("routes:\n")[1])
    site.append(range(4))
    assert site.deliver("a") == ""
    assert (site.rows("t0"), site.rows("t1")) == ([0, 2], [1, 3])


def test_another_route_of_the_pipeline_does_not_get_them(site: Site) -> None:
    both = BY_RECORD + renamed("b").split("routes:\n")[1]
    site.append(range(2))
    assert site.deliver() == ""
    site.write(both)
    assert site.deliver("b") == ""
    assert (site.rows("t0"), site.rows("t1"), site.totals("b")) == ([0], [1], (2, 0, 0, 2))
