"""``penstock status``: the accounting as people and machines see it."""

from __future__ import annotations

import json
import os
import signal
import subprocess

from penstock.engine.layout import Layout
from penstock.engine.ledger import Settlement
from penstock.engine.presence import engine_pid
from tests.cli.processes import COMMAND
from tests.cli.projects import Project


def test_machines_get_every_count(shop: Project) -> None:
    shown = json.loads(shop.penstock("status", "--json").out)
    warehouse, audit = shown["routes"]
    counts = {name: warehouse[name] for name in ("in", "added", "loaded", "skipped", "failed", "waiting", "lag")}
    assert counts == {"in": 6, "added": 0, "loaded": 3, "skipped": 1, "failed": 2, "waiting": 0, "lag": 2}
    assert warehouse["adds_up"] is True
    assert warehouse["skipped_by"] == {"where": 1}
    assert warehouse["tables"] == {"out": 3}
    assert (warehouse["state"], warehouse["message"]) == ("retrying", "PEN-DST-099: the target is away.")
    assert (audit["state"], audit["in"], audit["lag"], audit["last_commit"]) == (None, 0, 8, None)
    (partition,) = shown["partitions"]
    assert (partition["source"], partition["oldest"], partition["end"]) == ("web", 0, 8)
    assert partition["bytes"] > 0
    assert shown["engine_pid"] is None


def test_what_a_step_added_is_shown_by_step(shop: Project) -> None:
    pipeline = shop.open()
    batch = pipeline.ledger.begin("warehouse", {0: (6, 7)})
    assert batch is not None
    pipeline.ledger.commit(batch, Settlement(1, 3, added={"split": 2}))
    warehouse = json.loads(shop.penstock("status", "--json").out)["routes"][0]
    assert (warehouse["added"], warehouse["added_by"], warehouse["adds_up"]) == (2, {"split": 2}, True)
    lines = [line.split() for line in shop.penstock("status").out.splitlines()]
    assert ["route", "added", "by", "items"] in lines
    assert ["warehouse", "split", "2"] in lines


def test_people_see_counts_check_mark_and_the_whole_message(shop: Project) -> None:
    out = shop.penstock("status").out
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["warehouse"])
    assert row == ["warehouse", "stopped", "6", "3", "1", "2", "0", "2", "0/s", "✓"]
    assert "the engine does not run" in out
    assert "warehouse: PEN-DST-099: the target is away." in out
    assert "penstock failed list" in out


def test_the_state_is_believed_while_the_engine_runs(shop: Project) -> None:
    lock = Layout(shop.folder / "data").run / "engine.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text(str(os.getpid()))
    assert engine_pid(Layout(shop.folder / "data")) == os.getpid()
    out = shop.penstock("status").out
    assert f"the engine runs, pid {os.getpid()}" in out
    assert "retrying" in out


def test_a_lock_file_of_an_engine_that_is_gone_means_nothing(shop: Project) -> None:
    lock = Layout(shop.folder / "data").run / "engine.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text(str(os.getpid()))
    os.utime(lock, (0, 0))  # older than this process: the number was given out again
    assert engine_pid(Layout(shop.folder / "data")) is None


def test_a_pipeline_that_never_ran_says_how_to_start_it(fresh: Project) -> None:
    ran = fresh.penstock("status")
    assert (ran.code, ran.out) == (1, "")
    assert "PEN-ENG-004" in ran.err
    assert "penstock run" in ran.err
    assert not (fresh.folder / "data").exists()


def test_a_watched_status_is_a_line_a_second_until_it_is_told_to_end(shop: Project) -> None:
    words = [*COMMAND, "status", "--watch", "--json", "--config", str(shop.config)]
    watching = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())
    pipeline = shop.open()
    batch = pipeline.ledger.begin("warehouse", {0: (6, 8)})
    assert batch is not None
    pipeline.ledger.commit(batch, Settlement(2, 2))
    pipeline.ledger.close()
    lags = [json.loads(watching.stdout.readline())["routes"][0]["lag"] for _ in range(3)]
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=20)
    assert (watching.returncode, said) == (0, "")
    assert (first["routes"][0]["lag"], lags[-1]) == (2, 0)
