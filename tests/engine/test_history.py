"""An older copy is put back, a ledger deleted, a route renamed: nothing is lost or doubled without a word."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.engine.history import takeover
from penstock.engine.history.batch_origin import Origin
from penstock.engine.ledger import Adoption
from penstock.engine.operate.offset_control import acknowledge
from penstock.engine.operate.single_step import Stepper
from penstock.errors import ContradictionError, LedgerError
from penstock.log.lineage import LINEAGE_FILE
from tests.engine.copies import ONE_ROUTE, OPERATOR, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def wanted(numbers: range) -> list[int]:
    return [n for n in numbers if n % 10 != 9]


def test_an_older_copy_beside_a_newer_warehouse_is_refused_and_loses_nothing(site: Site) -> None:
    site.append(range(100))
    assert site.deliver(size=50) == ""
    site.keep("older")
    site.append(range(100, 300))
    assert site.deliver(size=50) == ""
    site.put_back("older")
    site.append(range(1000, 1200))
    said = site.deliver(size=50)
    assert "PEN-RTE-017" in said
    assert "penstock offset adopt a" in said
    assert site.rows() == wanted(range(300))
    site.adopt()
    assert site.deliver(size=50) == ""
    assert site.rows() == sorted([*wanted(range(300)), *wanted(range(1000, 1200))])
    assert site.totals() == (300, 270, 30, 0)


def test_numbers_that_have_met_again_are_told_apart_by_what_was_loaded(site: Site) -> None:
    """As at a destination that was unavailable when the route started: the mark itself is looked at."""
    site.append(range(100))
    site.deliver(size=100)
    site.keep("older")
    site.append(range(100, 200))
    site.deliver(size=100)
    site.put_back("older")
    site.append(range(1000, 1100))
    pipeline = site.open()
    plan = pipeline.plan("a")
    from threading import Event

    from penstock.engine.delivery.deliver_batch import Delivery
    from penstock.engine.delivery.halts import Halted
    from penstock.engine.delivery.task import stage_ranges

    delivery = Delivery(plan, plan.destination(), pipeline.log, pipeline.ledger, pipeline.failed_store, Event())
    with pytest.raises(Halted, match="PEN-DST-110"):
        delivery.deliver(stage_ranges(plan, pipeline.log, {0: (100, 200)}))
    pipeline.ledger.close()
    assert site.totals() == (100, 90, 10, 0)


def test_what_a_copy_had_not_delivered_is_adopted_as_far_as_the_copy_has_it(site: Site) -> None:
    """The batch that the copy's end lies in was loaded whole: its part is taken over, not loaded again."""
    site.append(range(100))
    site.deliver(size=50)
    site.append(range(100, 130))
    site.keep("older")
    site.append(range(130, 200))
    site.deliver()  # 100..199 in one batch
    site.put_back("older")
    site.append(range(1000, 1010))
    assert "PEN-RTE-017" in site.deliver()
    done = site.adopt()
    assert done.stretches == {0: (100, 130)}
    assert site.deliver() == ""
    assert site.rows() == sorted([*wanted(range(200)), *wanted(range(1000, 1010))])
    assert site.totals() == (140, 126, 14, 0)


def test_a_log_that_is_older_than_its_ledger_is_refused(site: Site) -> None:
    """Also once it has grown past where the ledger stands: what it gave these offsets to was never delivered."""
    site.append(range(100))
    site.keep("older")
    site.append(range(100, 200))
    site.deliver()
    ledger = {path.name: path.read_bytes() for path in site.data.glob("ledger.db*")}
    site.put_back("older")
    for name, content in ledger.items():
        (site.data / name).write_bytes(content)
    site.append(range(1000, 1200))
    said = site.deliver()
    assert "PEN-RTE-016" in said
    assert "from offset 100 on" in said
    pipeline = site.open()
    assert pipeline.floors() == {0: 0}, "retention leaves everything until somebody has decided"
    pipeline.ledger.close()
    site.adopt()
    assert site.deliver() == ""
    assert site.rows() == sorted([*wanted(range(200)), *wanted(range(1000, 1200))])


def test_a_lost_lineage_is_named_and_its_advice_doubles_nothing(site: Site) -> None:
    site.append(range(20))
    assert site.deliver() == ""
    (site.data / "log" / "0" / LINEAGE_FILE).unlink()
    site.append(range(20, 30))
    said = site.deliver()
    assert "PEN-RTE-020" in said
    assert LINEAGE_FILE in said
    assert "penstock offset ack a 0..19 --partition 0" in said
    site.adopt()
    pipeline = site.open()
    acknowledge(pipeline, "a", 0, 19, 0, OPERATOR)
    pipeline.ledger.close()
    assert site.deliver() == ""
    assert site.rows() == [n for n in range(30) if n % 10 != 9]


def test_a_deleted_ledger_does_not_deliver_the_history_again(site: Site) -> None:
    site.append(range(700))
    site.deliver(size=100)
    (site.data / "ledger.db").unlink()
    said = site.deliver()
    assert "PEN-RTE-019" in said
    assert "penstock offset adopt a a" in said
    assert site.rows() == wanted(range(700))
    site.append(range(700, 750))
    site.adopt()
    assert site.deliver() == ""
    assert site.rows() == wanted(range(750))
    assert site.totals() == (750, 675, 75, 0)


def test_a_renamed_route_does_not_deliver_the_history_again(site: Site) -> None:
    site.append(range(750))
    site.deliver(size=100)
    site.write(ONE_ROUTE.replace("  a:\n", "  b:\n"))
    said = site.deliver("b")
    assert "PEN-RTE-019" in said
    assert "penstock offset adopt a b" in said
    site.append(range(750, 800))
    site.adopt("a", "b")
    assert site.deliver("b") == ""
    assert site.rows() == wanted(range(800))
    assert site.totals("b") == (800, 720, 80, 0)


def test_a_new_route_on_a_new_target_starts_without_questions(site: Site) -> None:
    site.append(range(10))
    assert site.deliver() == ""
    site.write(ONE_ROUTE + "  b: {from: web, to: {type: duckdb, path: ./warehouse.duckdb, table: others}}\n")
    assert site.deliver("b") == ""
    assert site.rows("others") == list(range(10))


def test_two_pipelines_that_share_a_target_do_not_mind_each_other(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        other = Site(tmp_path / name, ONE_ROUTE.replace("./warehouse", "../warehouse"))
        other.append(range(5))
        assert other.deliver() == ""
    assert Site(tmp_path).rows() == sorted([*range(5), *range(5)])


def test_killed_between_the_destinations_commit_and_the_ledgers_is_no_contradiction(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock import faults

    site.append(range(20))
    with monkeypatch.context() as patch:
        patch.setattr(faults, "_armed", faults.parse("route.before_ledger_commit=raise"))
        with pytest.raises(faults.InjectedFault):
            site.deliver()
    assert site.deliver() == ""
    assert site.rows() == wanted(range(20))


OVERFLOWING = """\
name: shop
data_dir: ./data
sources:
  web: {type: file, path: ./web.ndjson}
routes:
  a:
    from: web
    to: {type: duckdb, path: ./warehouse.duckdb, table: "t{{ n }}", max_tables: 2}
"""


def test_what_overflowed_is_not_there_twice_after_an_adoption(tmp_path: Path) -> None:
    site = Site(tmp_path, OVERFLOWING)
    site.append(range(3))
    site.deliver()
    site.append([3, 4])
    site.deliver()
    for path in site.data.glob("ledger.db*"):
        path.unlink()
    assert "PEN-RTE-019" in site.deliver()
    site.adopt()
    assert site.deliver() == ""
    assert site.rows("_penstock_overflow_a") == [2, 3, 4]
    assert site.totals() == (5, 5, 0, 0)


def test_a_number_that_was_given_while_the_destination_was_away_is_not_taken_for_the_one_that_it_has(
    site: Site,
) -> None:
    """Where its tables are others than those of the batch that the destination has, no mark would tell."""
    site.append(range(10))
    site.deliver()
    shutil.copy(site.data / "ledger.db", site.folder / "older.db")
    site.append(range(10, 13))
    site.deliver()
    site.append(range(13, 16))
    for path in site.data.glob("ledger.db*"):
        path.unlink()
    shutil.copy(site.folder / "older.db", site.data / "ledger.db")
    pipeline = site.open()
    (partition,) = pipeline.log.partitions(["web"])
    ranges = {partition: (10, 16)}
    begun = pipeline.ledger.begin("a", ranges, Origin.of(pipeline.log, ranges))
    assert begun is not None
    assert begun.number == 2
    pipeline.ledger.close()
    assert "PEN-RTE-017" in site.deliver()
    site.adopt()
    assert site.deliver() == ""
    assert site.rows() == wanted(range(16))


@pytest.mark.parametrize("decide", ["adopt", "start_at"])
def test_a_number_that_was_given_up_is_not_given_again(site: Site, decide: str) -> None:
    site.append(range(10))
    pipeline = site.open()
    (partition,) = pipeline.log.partitions(["web"])
    ledger = pipeline.ledger
    ledger.open_route("a", {partition: 0})
    begun = ledger.begin("a", {partition: (0, 5)})
    if decide == "adopt":
        ledger.adopt("a", Adoption([], 0), OPERATOR)
    else:
        ledger.start_at("a", {partition: 0}, 7, OPERATOR)
    again = ledger.begin("a", {partition: (0, 10)})
    assert begun is not None
    assert again is not None
    assert (begun.number, again.number) == (1, 2 if decide == "adopt" else 8)
    ledger.close()


def test_a_route_at_work_is_not_adopted_and_keeps_its_failed_records(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.append(range(10))
    site.deliver()
    failed = site.data / "failed" / "failed.dst=a.log"
    failed.parent.mkdir(exist_ok=True)
    failed.write_text("what a batch under way has just put there\n")
    monkeypatch.setattr(takeover, "running_engine", lambda pipeline: 1)
    with pytest.raises(LedgerError, match="PEN-LGR-013"):
        site.adopt()
    assert [path.name for path in failed.parent.iterdir()] == ["failed.dst=a.log"]


def test_a_contradiction_met_while_stepping_is_said_as_it_is(site: Site) -> None:
    site.append(range(5))
    site.deliver()
    for path in site.data.glob("ledger.db*"):
        path.unlink()
    pipeline = site.open()
    with Stepper(pipeline, "a") as stepper:
        look = stepper.next()
        assert look is not None
        with pytest.raises(ContradictionError, match="PEN-RTE-019"):
            stepper.deliver(look)
    pipeline.ledger.close()
    assert site.rows() == list(range(5))


@pytest.mark.parametrize(("done", "stands_at"), [(True, 3), (False, 0)])
def test_a_route_that_left_nothing_but_a_checkpoint_can_go_on_behind_it(site: Site, done: bool, stands_at: int) -> None:
    """It had taken records and skipped all of them, so that its destination knows nothing of it."""
    site.append([9, 19, 29])
    assert site.deliver() == ""
    for file in site.data.glob("ledger.db*"):
        file.unlink()
    checkpoint = site.data / "checkpoints" / "a-0123abcd-1"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text('v1\n{}\n{"0": 3}')
    (checkpoint / "commits").mkdir()
    if done:
        (checkpoint / "commits" / "0").write_text("v1\n{}")
    assert "PEN-RTE-019" in site.deliver()
    assert site.adopt().stretches == {0: (0, stands_at)}
    site.append([30])
    assert site.deliver() == ""
    assert site.rows() == [30]
    assert site.totals() == (4, 1, 3, 0)


FILES = """\
name: shop
data_dir: ./data
sources:
  web: {type: file, path: ./web.ndjson}
routes:
  a: {from: web, to: {type: file, path: ./out}}
"""


def lines(site: Site) -> list[str]:
    return sorted(line for file in (site.folder / "out").glob("*") for line in file.read_text().splitlines())


def note_checkpoint(site: Site, end: int) -> None:
    """As Spark does when a batch is done: after the ledger has it."""
    pipeline = site.open()
    checkpoint = pipeline.layout.checkpoint("a", pipeline.ledger.scope, pipeline.ledger.generation("a"))
    pipeline.ledger.close()
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / "0").write_text(f'v1\n{{}}\n{{"0": {end}}}')
    (checkpoint / "commits" / "0").write_text("v1\n{}")


def test_an_older_ledger_beside_a_newer_checkpoint_halts_a_route_whose_destination_keeps_no_marks(site: Site) -> None:
    site.write(FILES)
    site.append(range(3))
    assert site.deliver() == ""
    note_checkpoint(site, 3)
    site.keep("older")
    site.append(range(3, 5))
    assert site.deliver() == ""
    note_checkpoint(site, 5)
    for file in (site.folder / "older").glob("ledger.db*"):
        shutil.copy(file, site.data / file.name)
    site.append([5])
    halted = site.deliver()
    assert "PEN-RTE-024" in halted
    assert "penstock offset adopt a" in halted
    assert site.adopt().stretches == {0: (3, 5)}
    assert site.deliver() == ""
    assert len(lines(site)) == len(set(lines(site))) == 6
    assert site.totals() == (6, 4, 2, 0)
