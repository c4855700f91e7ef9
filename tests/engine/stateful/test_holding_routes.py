"""Routes with holding steps, for real: Spark, DuckDB, a kill behind the first commit, a lost checkpoint, and ticks.

``tests/chaos/test_waiting.py`` kills at other moments.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.engine.layout import Layout
from penstock.engine.ledger import Ledger, Totals, sqlite_url
from penstock.log.local_log import LocalLog
from penstock.record import Record, entries
from penstock.testing.waiting import HANG, eventually
from tests.cli.projects import Project
from tests.engine.stateful.run_to_end import run_to_end
from tests.support.command import run_penstock, start_penstock
from tests.support.duckdb_file import open_file

PIPELINE = """\
name: shop
engine: {restart_backoff: 100ms, restart_backoff_max: 200ms}
sources: {orders: {type: file, path: ./orders.ndjson}}
routes:
  unique:
    from: orders
    max_records: 150
    steps: [{dedupe: {key: id, window: 1h}}]
    to: {type: duckdb, path: ./unique.duckdb, table: orders}
  together:
    from: orders
    max_records: 160
    steps: [{where: "n <> 7"}, {gather: {key: [order], until: "status = 'closed'", at_most: 10m}}]
    to: {type: duckdb, path: ./together.duckdb, table: orders}
"""
KILL = "route.ledger_committed"
"""Right after a route has committed its first batch, which Spark then asks for again."""


def write_orders(path: Path, *orders: dict[str, object]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(order) + "\n" for order in orders)


def append(folder: Path, source: str, *orders: dict[str, object]) -> None:
    """To the log, as the source would."""
    with LocalLog(Layout(folder / "data").log).writer(source) as writer:
        writer.append(entries(Record(json.dumps(order).encode(), source) for order in orders))


def loaded(path: Path) -> list[int]:
    with open_file(path, read_only=True) as warehouse:
        return [n for (n,) in warehouse.execute("SELECT n FROM orders ORDER BY n").fetchall()]


@contextmanager
def running(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """``penstock run``, until the end of the block."""
    process = start_penstock(["run"], folder, folder / "log.txt", environment=environment)
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{error}\n{(folder / 'log.txt').read_text()}") from error
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(HANG)


def test_nothing_is_lost_or_doubled_and_what_waits_outlives_its_state(tmp_path: Path) -> None:
    orders: list[dict[str, object]] = [
        {"id": n % 100, "order": n % 100, "n": n, "status": "closed" if n >= 200 and n % 100 >= 5 else "open"}
        for n in range(300)
    ]
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    write_orders(tmp_path / "orders.ndjson", *orders)
    fired = tmp_path / "fired"
    fired.mkdir()
    faults = {"PENSTOCK_FAULTS": f"{KILL}=kill", "PENSTOCK_FAULTS_ONCE": str(fired)}
    layout = Layout(tmp_path / "data")
    with running(tmp_path, faults):
        eventually(layout.ledger.exists, "there is a ledger")
        ledger = Ledger.open(sqlite_url(layout.ledger), "shop")
        eventually(lambda: ledger.totals("unique").items == 300, "one route has seen everything")
        eventually(lambda: ledger.totals("together").items == 300, "the other route has seen everything")
    assert [path.name for path in fired.iterdir()] == [KILL]
    # Of five orders the last record does not close them; one record of another is left out by `where`.
    unclosed = [n for n in range(300) if n % 100 < 5]
    assert loaded(tmp_path / "together.duckdb") == [n for n in range(300) if n != 7 and n not in unclosed]
    assert loaded(tmp_path / "unique.duckdb") == list(range(100))
    assert ledger.totals("unique") == Totals(items=300, loaded=100, skipped=200)
    assert ledger.totals("together") == Totals(items=300, loaded=284, skipped=1, waiting=15)
    assert ledger.held("together") == {0: 0}
    assert ledger.offsets("together")[0].hold == 0
    shown = Project(tmp_path).penstock("status")
    assert re.search(r"together: its steps keep 15 records back, and the log keeps \d+(\.\d)? KiB for them", shown.out)
    rows = json.loads(Project(tmp_path).penstock("offset", "list", "--json").out)
    # Ticks may have come, which are in a partition of their own.
    (row,) = [row for row in rows if (row["route"], row["source"]) == ("together", "orders")]
    assert (row["hold"], row["held_bytes"] > 0) == (0, True)

    # The state of one route is gone. It goes back to its oldest record that waits, which is the first of all.
    shutil.rmtree(layout.checkpoint("together", ledger.scope, ledger.generation("together")))
    write_orders(tmp_path / "orders.ndjson", {"id": 1, "order": 2, "n": 300, "status": "closed"})
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.replace("10m", "3s"))
    with running(tmp_path, {}):
        # The new record closes one order. Nobody but a tick lets the other four go on.
        eventually(lambda: ledger.totals("together").loaded == 2 * 284 + 16, "what waits goes on")
    text = (tmp_path / "log.txt").read_text()
    assert "the state of its step is gone, and 15 records waited in it; it goes back to offset 0" in text, text
    found = loaded(tmp_path / "together.duckdb")
    assert set(found) == set(range(301)) - {7}
    assert all(found.count(n) == 1 for n in (*unclosed, 300))
    assert loaded(tmp_path / "unique.duckdb") == list(range(100))
    totals = ledger.totals("together")
    assert (totals.waiting, totals.items) == (0, 601)
    assert totals.items == totals.loaded + totals.skipped
    assert ledger.held("together") == {}


LIMITED = """\
name: shop
sources: {orders: {type: file, path: ./orders.ndjson}}
routes:
  together:
    from: orders
    max_hold_bytes: 20KB
    steps: [{gather: {key: [order], until: "status = 'closed'", at_most: 1d}}]
    to: {type: duckdb, path: ./together.duckdb, table: orders}
"""


def test_what_waits_goes_on_when_it_keeps_too_much_and_when_an_operator_says_so(tmp_path: Path) -> None:
    orders: list[dict[str, object]] = [{"order": n, "n": n, "pad": "x" * 1000} for n in range(43)]
    (tmp_path / "pipeline.yaml").write_text(LIMITED)
    write_orders(tmp_path / "orders.ndjson", *orders[:40])
    layout = Layout(tmp_path / "data")
    with running(tmp_path, {}):
        eventually(layout.ledger.exists, "there is a ledger")
        ledger = Ledger.open(sqlite_url(layout.ledger), "shop")
        eventually(lambda: ledger.totals("together").loaded == 40, "more than the limit does not wait")
        write_orders(tmp_path / "orders.ndjson", *orders[40:])
        eventually(lambda: ledger.totals("together").waiting == 3, "less than the limit waits")
    assert loaded(tmp_path / "together.duckdb") == list(range(40))

    # Asked for while no engine runs, carried out by a run that ends.
    asked = Project(tmp_path).penstock("offset", "release", "together")
    assert asked.out == "together: 3 records that waited go on at the next start\n"
    assert start_penstock(["run", "--once"], tmp_path, tmp_path / "log.txt").wait(HANG) == 0
    assert loaded(tmp_path / "together.duckdb") == list(range(43))
    assert ledger.totals("together") == Totals(items=43, loaded=43)
    assert ledger.held("together") == {}
    acts = [(act.act, act.who == "penstock", act.start, act.end) for act in ledger.interventions("together")]
    assert acts == [("release", False, 40, 43), ("release", True, 0, 40)]


CHANGING = """\
name: shop
sources: {orders: {type: file, path: ./orders.ndjson}, late: {type: file, path: ./late.ndjson}}
routes:
  out: {from: %s, steps: %s, to: {type: duckdb, path: ./out.duckdb, table: orders}}
"""


def test_a_route_goes_on_when_its_step_or_a_source_comes_changes_or_leaves(tmp_path: Path) -> None:
    dedupe, gather = "[dedupe: {key: k, window: 1h}]", "[gather: {key: k, until: 'done', at_most: 1h}]"

    def run_with(sources: str, steps: str) -> str:
        (tmp_path / "pipeline.yaml").write_text(CHANGING % (sources, steps))
        said = run_to_end(tmp_path)
        assert "Exception" not in said
        return said

    append(tmp_path, "late", {"n": 100, "k": 2})
    for n, (sources, steps) in enumerate([("[orders, late]", dedupe), ("[orders, late]", "[]"), ("orders", gather)]):
        append(tmp_path, "orders", {"n": n, "k": 1})
        run_with(sources, steps)
    # A source that comes back to a checkpoint that never knew it goes on where it was, and the state stays.
    append(tmp_path, "late", {"n": 101, "k": 2, "done": True})
    assert "is gone" not in run_with("[orders, late]", gather)
    assert loaded(tmp_path / "out.duckdb") == [0, 1, 100, 101]
    # What waited in `gather` is read again once that has left, and what was delivered behind it is delivered again.
    # The one behind both has a key that was seen.
    append(tmp_path, "orders", {"n": 3, "k": 1})
    assert "is gone" in run_with("[orders, late]", dedupe)
    assert loaded(tmp_path / "out.duckdb") == [0, 1, 2, 100, 101, 101]
    ledger = Ledger.open(sqlite_url(Layout(tmp_path / "data").ledger), "shop")
    assert ledger.totals("out").adds_up


def test_a_batch_under_way_is_finished_before_another_step_decides(tmp_path: Path) -> None:
    dedupe = "[dedupe: {key: k, window: 1h}]"
    append(tmp_path, "orders", *({"n": n, "k": 1} for n in range(5)))
    for source in ("orders", "late"):
        (tmp_path / f"{source}.ndjson").touch()

    def run_with(steps: str) -> str:
        (tmp_path / "pipeline.yaml").write_text(CHANGING % ("orders", steps))
        return run_to_end(tmp_path)

    (tmp_path / "pipeline.yaml").write_text(CHANGING % ("orders", "[]"))
    run_penstock(["run", "--once"], tmp_path, {"PENSTOCK_FAULTS": "route.before_ledger_commit=kill"})
    assert loaded(tmp_path / "out.duckdb") == list(range(5))
    assert "PEN-RTE-025" in run_with(dedupe)
    assert "PEN-RTE-025" not in run_with("[]")
    append(tmp_path, "orders", {"n": 5, "k": 1}, {"n": 6, "k": 1})
    assert "PEN-RTE-025" not in run_with(dedupe)
    assert loaded(tmp_path / "out.duckdb") == list(range(6))
