"""A destination that was replaced by an older copy, or by an empty one: the route notices that rows are gone, before it
writes more, and says how to deliver them again."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from threading import Event

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.halts import Halted
from penstock.engine.delivery.task import stage_ranges
from penstock.engine.ledger import batches
from penstock.engine.operate.doctor import Verdict, run_checks
from tests.engine.copies import ONE_ROUTE, Site

TWO_TABLES = ONE_ROUTE.replace("table: events", 'table: "t{{ n % 2 }}", tables: [t0, t1]')


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.chdir(tmp_path)
    return Site(tmp_path)


def warehouse(site: Site) -> Path:
    return site.folder / "warehouse.duckdb"


def wanted(*ranges: range) -> list[int]:
    return sorted(n for numbers in ranges for n in numbers if n % 10 != 9)


def replace_by_monday(site: Site) -> None:
    """Deliver 100 records, keep the warehouse, deliver 100 more, and put the kept one back."""
    site.append(range(100))
    assert site.deliver(size=30) == ""
    shutil.copy(warehouse(site), site.folder / "monday.duckdb")
    site.append(range(100, 200))
    assert site.deliver(size=30) == ""
    shutil.copy(site.folder / "monday.duckdb", warehouse(site))


def run_verb(line: str) -> str:
    ran = CliRunner().invoke(app, line.removeprefix("penstock ").split())
    assert ran.exit_code == 0, ran.stderr
    return ran.stderr


def test_a_route_waits_and_says_how_to_deliver_what_an_older_copy_lacks(site: Site) -> None:
    replace_by_monday(site)
    site.append(range(200, 300))
    said = site.deliver()
    assert "PEN-RTE-026" in said
    assert "lacks 90 rows" in said
    assert site.rows() == wanted(range(100))
    (verb,) = re.findall(r"penstock offset rewind a --to \d+ --partition \d+", said)
    assert "lacks 90 rows" in run_verb(f"{verb} --yes")
    assert site.deliver() == ""
    assert site.rows() == wanted(range(300))


def test_an_operator_can_go_on_without_them(site: Site) -> None:
    replace_by_monday(site)
    site.append(range(200, 300))
    verb = re.findall(r"without them: (penstock .*)", site.deliver())[0]
    run_verb(f"{verb} --yes")
    assert site.deliver() == ""
    assert site.rows() == wanted(range(100), range(200, 300))
    site.append(range(300, 310))
    assert site.deliver() == ""


def test_the_doctor_sees_it_without_anything_to_deliver(site: Site) -> None:
    replace_by_monday(site)
    (found,) = (each for each in run_checks(site.folder / "pipeline.yaml") if "PEN-RTE-026" in each.found)
    assert (found.verdict, "penstock offset rewind a --to 100 --partition 0" in found.fix) == (Verdict.FAIL, True)


def test_a_warehouse_that_is_gone_is_an_older_copy_too(site: Site) -> None:
    site.append(range(50))
    assert site.deliver() == ""
    warehouse(site).unlink()
    assert site.deliver() != ""
    site.append(range(50, 60))
    assert "lacks 45 rows" in site.deliver()
    assert not warehouse(site).exists()


def test_a_route_that_runs_notices_it_at_its_next_batch(site: Site) -> None:
    site.append(range(50))
    assert site.deliver() == ""
    shutil.copy(warehouse(site), site.folder / "monday.duckdb")
    pipeline = site.open()
    plan = pipeline.plan("a")
    delivery = Delivery(
        plan, plan.destination(), pipeline.log, pipeline.ledger, pipeline.failed_store, Event(),
        history=pipeline.history(),
    )  # fmt: skip
    delivery.check_history()
    site.append(range(50, 150))
    delivery.deliver(stage_ranges(plan, pipeline.log, {0: (50, 100)}))
    shutil.copy(site.folder / "monday.duckdb", warehouse(site))
    with pytest.raises(Halted, match=r"PEN-RTE-026.*lacks 45 rows.*--to 50 --partition 0"):
        delivery.deliver(stage_ranges(plan, pipeline.log, {0: (100, 150)}))
    pipeline.ledger.close()
    assert site.rows() == wanted(range(50))


def test_what_the_ledger_no_longer_lists_is_missed_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "KEPT_BATCHES", 3)
    site.append(range(10))
    assert site.deliver(size=10) == ""
    shutil.copy(warehouse(site), site.folder / "monday.duckdb")
    site.append(range(10, 80))
    assert site.deliver(size=10) == ""
    shutil.copy(site.folder / "monday.duckdb", warehouse(site))
    said = site.deliver()
    assert "lacks at least 27 rows" in said
    run_verb("penstock offset rewind a --to 10 --partition 0 --yes")
    assert "--to 10 --partition 0" in said
    assert site.deliver() == ""
    assert site.rows() == wanted(range(80))


def test_one_that_comes_after_many_batches_without_rows_is_missed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "KEPT_BATCHES", 3)
    site.append(range(9))
    assert site.deliver() == ""
    site.append([9] * 5)
    assert site.deliver(size=1) == ""
    warehouse(site).unlink()
    said = site.deliver()
    assert "PEN-RTE-026" in said
    run_verb("penstock offset rewind a --to 0 --partition 0 --yes")
    assert site.deliver() == ""
    assert site.rows() == wanted(range(9))


def test_a_route_waits_until_all_partitions_are_rewound(site: Site) -> None:
    site.append(range(10))
    site.append(range(100, 110), worker=1)
    assert site.deliver(size=4) == ""
    warehouse(site).unlink()
    verbs = re.findall(r"penstock offset rewind a --to \d+ --partition \d+", site.deliver())
    assert len(verbs) == 2
    run_verb(f"{verbs[0]} --yes")
    assert verbs[1] in site.deliver()
    run_verb(f"{verbs[1]} --yes")
    assert site.deliver() == ""
    assert site.rows() == wanted(range(10), range(100, 110))


def test_a_route_that_was_dropped_and_comes_back_expects_nothing(site: Site) -> None:
    replace_by_monday(site)
    run_verb("penstock offset rewind a --to 0s --yes")
    site.append(range(200, 210))
    assert site.deliver() == ""
    site.write(ONE_ROUTE.replace("  a:\n", "  b:\n"))
    run_verb("penstock offset drop a --yes")
    warehouse(site).unlink()
    site.write(ONE_ROUTE)
    assert "PEN-RTE-026" not in site.deliver()


def test_batches_without_rows_are_not_missed(site: Site) -> None:
    site.append([9, 19, 29])
    assert site.deliver(size=1) == ""
    site.append(range(10))
    assert site.deliver() == ""
    site.append([9] * 5)
    assert site.deliver(size=1) == ""
    assert site.deliver() == ""
    assert site.rows() == wanted(range(10))


def test_one_of_several_tables_is_enough_to_know_a_batch(site: Site) -> None:
    site.write(TWO_TABLES)
    for n in range(6):
        site.append([n])
        assert site.deliver() == ""
    assert site.rows("t0") == [0, 2, 4]


def test_a_renamed_route_is_not_missed_under_its_new_name(site: Site) -> None:
    site.append(range(20))
    assert site.deliver() == ""
    site.write(ONE_ROUTE.replace("  a:\n", "  b:\n"))
    assert run_verb("penstock offset adopt a b") is not None
    site.append(range(20, 30))
    assert site.deliver("b") == ""
    assert site.rows() == wanted(range(30))


@pytest.mark.parametrize("ledger", ["the same", "another"])
def test_what_was_adopted_is_expected_under_the_number_it_was_written_with(site: Site, ledger: str) -> None:
    site.append(range(20))
    site.keep("older")
    assert site.deliver(size=5) == ""
    if ledger == "the same":
        site.put_back("older")
    else:
        (site.data / "ledger.db").unlink()
    site.adopt()
    assert site.deliver() == ""
    site.append(range(20, 30))
    assert site.deliver() == ""
    assert site.deliver() == ""
    assert site.rows() == wanted(range(30))


def test_retention_keeps_what_an_operator_is_told_to_deliver_again(site: Site) -> None:
    site.write(ONE_ROUTE + "log: {segment_bytes: 4KB, retention: {max_bytes: 4KB}}\n")
    site.append(range(10))
    assert site.deliver() == ""
    shutil.copy(warehouse(site), site.folder / "monday.duckdb")
    for start in range(10, 400, 10):
        site.append(range(start, start + 10))
    assert site.deliver() == ""
    shutil.copy(site.folder / "monday.duckdb", warehouse(site))
    (verb,) = re.findall(r"penstock offset rewind a --to \d+ --partition \d+", site.deliver())
    site.apply_retention()
    run_verb(f"{verb} --yes")
    assert site.deliver() == ""
    assert site.rows() == wanted(range(400))
    assert site.apply_retention() > 0
