"""Rows that wait for a table, and something that keeps them from ever coming: they are not passed over in silence, and
what is said to do works. On a real PostgreSQL."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.engine.delivery.log_gaps import gaps
from penstock.engine.ledger import Totals
from penstock.engine.operate.doctor import run_checks
from penstock.engine.operate.offset_control import acknowledge
from penstock.engine.operate.status import status
from penstock.errors import RouteError
from penstock.log.format.log_files import segment_bases, segment_path
from penstock.testing.mirror import Source
from tests.engine.copies import OPERATOR
from tests.engine.test_catching_up import retries_without_spark
from tests.engine.test_full_disk import disk
from tests.engine.test_waiting import BY_KIND, Shop, shop
from tests.support.database import Database
from tests.support.small_disk import fill

__all__ = ["disk", "shop"]


def changed(shop: Shop, old: str, new: str) -> None:
    """Change the config and start again."""
    config = shop.folder / "pipeline.yaml"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new))
    shop.reopen()


@pytest.fixture
def gapped(tmp_path: Path, database: Database) -> Shop:
    """Twice three records of which the first is for a table that waits; the log has lost the first time."""
    shop = Shop(tmp_path, database)
    changed(shop, "sources:\n", "log: {segment_bytes: 4KB}\nsources:\n")
    shop.append(("orders", 0), ("visits", 0))
    shop.deliver()
    with shop.locked("orders"):
        for n in (1, 2):
            for kind in ("orders", "visits", "visits"):
                shop.append((kind, n), pad=random.Random(n).randbytes(3000).hex())
            shop.deliver()
    assert shop.waiting == {"orders": (2, 2)}
    folder = shop.pipeline.log.partition_dir(0)
    for base in [base for base in segment_bases(folder) if base < 5]:
        segment_path(folder, base).unlink()
    shop.reopen()
    assert shop.pipeline.log.bounds(0).oldest == 5
    return shop


def test_what_a_table_waits_for_and_the_log_has_lost_is_not_passed_over_in_silence(gapped: Shop) -> None:
    with pytest.raises(RouteError, match=r"table 'orders'.* waits for offsets 2..4 of partition 0"):
        gapped.deliver()
    gapped.retry()
    assert gapped.waiting == {"orders": (2, 2)}
    assert "waits for offsets 2..4 of partition 0" in gapped.pipeline.ledger.waiting_tables("out")["orders"].reason
    assert gapped.rows("orders") == [0]


def test_what_the_log_has_lost_can_be_given_up_and_the_rest_comes(gapped: Shop) -> None:
    (gap,) = gaps(gapped.pipeline.log, gapped.pipeline.ledger, "out", gapped.delivery.plan.sources)
    assert f"penstock offset ack out {gap.first}..{gap.last} --partition 0" in gap.fix
    acknowledge(gapped.pipeline, "out", gap.first, gap.last, gap.partition, OPERATOR)
    gapped.append(("orders", 3))
    gapped.deliver()
    gapped.retry()
    assert gapped.waiting == {}
    assert gapped.rows("orders") == [0, 2, 3]
    assert gapped.totals == Totals(items=9, loaded=8, skipped=1)
    assert gapped.pipeline.ledger.account("out").skipped_by == {"acknowledged": 1}
    gapped.check_books()


def test_what_a_table_waits_for_of_a_source_that_the_route_no_longer_reads_can_be_given_up(shop: Shop) -> None:
    changed(shop, "sources:\n", "sources:\n  app: {type: file, path: ./app.ndjson}\n")
    changed(shop, "from: web", "from: [web, app]")
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1), source="app")
        shop.deliver()
    changed(shop, "from: [web, app]", "from: web")
    (app,) = shop.pipeline.log.partitions(["app"])
    acknowledge(shop.pipeline, "out", 0, 0, app, OPERATOR)
    shop.retry()
    assert shop.waiting == {}
    assert shop.rows("orders") == [0]
    assert shop.pipeline.ledger.account("out").skipped_by == {"acknowledged": 1}
    shop.check_books()


TABLES, FEWER = "tables: [orders, visits, clicks]", "tables: [visits, clicks]"


def test_rows_that_a_table_waits_for_wait_on_if_the_config_no_longer_takes_them(shop: Shop) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1), ("strange", 1))
        shop.deliver()
        shop.append(("orders", 2), ("visits", 2))
        shop.deliver()
    changed(shop, TABLES, FEWER)
    shop.retry()
    assert shop.waiting == {"orders": (2, 2)}
    assert "penstock offset ack out 2 --partition 0" in shop.pipeline.ledger.waiting_tables("out")["orders"].reason
    changed(shop, FEWER, TABLES)
    shop.retry()
    assert shop.rows("orders") == [0, 1, 2]
    assert shop.totals == Totals(items=7, loaded=6, failed=1)
    shop.check_books()


def test_rows_that_the_config_no_longer_takes_can_be_given_up(shop: Shop) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
    changed(shop, TABLES, FEWER)
    acknowledge(shop.pipeline, "out", 2, 2, None, OPERATOR)
    shop.retry()
    assert shop.waiting == {}
    assert shop.totals == Totals(items=4, loaded=3, skipped=1)
    assert shop.pipeline.ledger.account("out").skipped_by == {"acknowledged": 1}
    shop.check_books()


def test_who_gives_up_some_rows_that_the_config_no_longer_takes_gives_up_no_others(shop: Shop) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1), ("orders", 2))
        shop.deliver()
    changed(shop, TABLES, "tables: [clicks]")
    acknowledge(shop.pipeline, "out", 2, 3, None, OPERATOR)
    shop.retry()
    assert shop.waiting == {"orders": (2, 1)}
    changed(shop, "tables: [clicks]", TABLES)
    shop.retry()
    assert shop.rows("orders") == [0, 2]
    assert shop.totals == Totals(items=5, loaded=4, skipped=1)
    shop.check_books()


def test_rows_that_a_table_waits_for_are_not_dropped_because_its_name_has_changed(shop: Shop) -> None:
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
    changed(shop, TABLES, "tables: [old_orders, old_visits]")
    changed(shop, "{{ kind }}", "old_{{ kind }}")
    shop.retry()
    assert shop.waiting == {"orders": (1, 1)}
    assert "old_orders" in shop.pipeline.ledger.waiting_tables("out")["orders"].reason
    assert shop.rows("orders") == [0]


@pytest.mark.parametrize("mirrors", [False, True])
def test_a_table_of_somebody_else_s_that_is_no_longer_adopted_loses_nothing_that_it_waits_for(
    tmp_path: Path, database: Database, mirrors: bool
) -> None:
    schema = database.schema
    database.ask(f'CREATE SCHEMA "{schema}"; CREATE TABLE "{schema}".orders (n bigint, kind text)')
    more = "load: mirror\n      adopt: [orders]" if mirrors else f"{BY_KIND}      adopt: [orders]"
    shop = Shop(tmp_path, database, more)
    columns = {"n": "bigint", "kind": "text"}
    orders, visits = (Source(columns, key=("n",), namespace=f"public.{kind}") for kind in ("orders", "visits"))

    def send(*kinds: str) -> None:
        if mirrors:
            shop.log(*({"orders": orders, "visits": visits}[kind].insert(n=1, kind=kind) for kind in kinds))
        else:
            shop.append(*((kind, 1) for kind in kinds))

    send("visits")
    shop.deliver()
    with shop.locked("orders"):
        send("orders", "visits")
        shop.deliver()
    assert shop.waiting == {"orders": (1, 1)}
    changed(shop, "      adopt: [orders]", "")
    shop.retry()
    if mirrors:
        assert shop.waiting == {"orders": (1, 1)}
        assert "add it to `adopt`" in shop.pipeline.ledger.waiting_tables("out")["orders"].reason
    else:
        # The ledger has seen this route fill it.
        assert shop.rows("orders") == [1]
    shop.check_books()


@pytest.fixture
def left(shop: Shop) -> Shop:
    """A route that left the config while two rows wait for a table of it."""
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1), ("orders", 2))
        shop.deliver()
    changed(shop, "  out:\n", "  other:\n")
    return shop


def test_rows_that_wait_for_a_route_that_left_the_config_are_shown_and_kept(left: Shop) -> None:
    (_, found) = status(left.pipeline).routes
    assert (found.route, found.state, found.waiting["orders"].rows) == ("out", "not in the config", 2)
    assert found.adds_up
    assert left.pipeline.floors()[0] == 0
    left.pipeline.ledger.close()
    told = [finding for finding in run_checks(left.folder / "pipeline.yaml") if "2 rows wait for it" in finding.found]
    assert [(finding.subject, finding.verdict) for finding in told] == [("route out", "warn")]
    assert "penstock offset drop out" in told[0].fix


def test_who_drops_a_route_is_told_how_many_rows_wait_for_it(left: Shop) -> None:
    left.pipeline.ledger.close()
    dropped = CliRunner().invoke(app, ["offset", "drop", "out", "--yes", "-c", str(left.folder / "pipeline.yaml")])
    assert dropped.exit_code == 0, dropped.output
    assert "2 rows that its tables wait for" in dropped.output
    left.pipeline = left.open()
    assert left.pipeline.ledger.waiting_parts("out") == []
    assert left.pipeline.ledger.waiting_partitions("out") == set()


@pytest.mark.parametrize("apart", [False, True])
def test_a_full_disk_while_rows_are_made_anew_loses_and_doubles_nothing(shop: Shop, disk: Path, apart: bool) -> None:
    """``apart``: by a process of their own, as an engine does it."""
    with shop.locked("orders"):
        shop.append(("orders", 1), ("visits", 1))
        shop.deliver()
        shop.append(("orders", 2))
        shop.deliver()
    stage = shop.folder / "data" / "stage"
    shutil.rmtree(stage)
    stage.symlink_to(disk)
    retry = (lambda: retries_without_spark(shop).lane.retry_due_tables()) if apart else shop.retry
    ballast = fill(disk)
    with pytest.raises(Exception, match="No space left"):
        retry()
    assert shop.waiting == {"orders": (2, 2)}
    ballast.unlink()
    retry()
    assert shop.rows("orders") == [0, 1, 2]
    assert shop.totals == Totals(items=5, loaded=5)
    shop.check_books()
