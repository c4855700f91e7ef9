"""Retention's floors: nothing that any route can still need is ever released."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.config.loading import load
from penstock.engine.pipeline import Pipeline
from penstock.errors import LedgerError, PenstockError
from tests.engine.projects import append, commit, pipeline


def opened(folder: Path) -> tuple[Pipeline, int]:
    found = pipeline(folder)
    partition = append(found, "web", [b'{"n": %d, "pad": "%s"}' % (n, b"x" * 500) for n in range(40)])
    for route in ("a", "b"):
        found.ledger.open_route(route, {partition: 0})
    return found, partition


def released_by_spark(found: Pipeline, route: str, partition: int, offset: int) -> None:
    found.log.holds.set(route, {partition: offset})
    found.layout.checkpoint(route, found.ledger.scope).mkdir(parents=True)


def test_a_route_that_has_committed_nothing_holds_everything(tmp_path: Path) -> None:
    found, partition = opened(tmp_path)
    commit(found, "a", partition, 40)
    released_by_spark(found, "a", partition, 40)
    assert found.floors()[partition] == 0
    found.log.apply_retention(found.floors(), datetime.now(UTC) + timedelta(days=1))
    assert found.log.bounds(partition).oldest == 0


def test_a_batch_under_way_is_held_also_of_a_source_that_its_route_no_longer_reads(tmp_path: Path) -> None:
    found = pipeline(tmp_path)
    partition = append(found, "other", [b"{}"] * 9)
    found.ledger.open_route("a", {partition: 0})
    commit(found, "a", partition, 3)
    found.ledger.open_route("b", {partition: 9})
    assert found.floors()[partition] == 9
    found.ledger.begin("a", {partition: (3, 5)})
    assert found.floors()[partition] == 3


def test_what_spark_may_ask_for_again_is_held_although_the_ledger_has_it(tmp_path: Path) -> None:
    found, partition = opened(tmp_path)
    for route in ("a", "b"):
        commit(found, route, partition, 40)
    released_by_spark(found, "a", partition, 40)
    released_by_spark(found, "b", partition, 25)
    assert found.floors()[partition] == 25


def test_the_slowest_route_decides_and_the_rest_is_readable(tmp_path: Path) -> None:
    found, partition = opened(tmp_path)
    for route, end in (("a", 40), ("b", 30)):
        commit(found, route, partition, end)
        released_by_spark(found, route, partition, end)
    removed = found.log.apply_retention(found.floors(), datetime.now(UTC) + timedelta(days=1))
    assert removed
    oldest = found.log.bounds(partition).oldest
    assert 0 < oldest <= 30
    offsets = [offset for batch in found.log.read(partition, 30) for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(30, 40))


def test_a_partition_that_no_route_reads_is_not_held(tmp_path: Path) -> None:
    found, _ = opened(tmp_path)
    lonely = append(found, "nobody", [b"{}", b"{}"])
    assert found.floors()[lonely] == 2


def test_a_pipeline_that_never_ran_says_so_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        'name: shop\nsources: {web: {type: file, path: ./x}}\nroutes: {a: {from: web, to: {type: "null"}}}\n'
    )
    with pytest.raises(PenstockError, match="has not run yet"):
        Pipeline.open(load(tmp_path / "pipeline.yaml"), create=False)
    assert not (tmp_path / "data").exists()


def test_a_log_that_was_replaced_is_refused_before_anything_is_passed_over(tmp_path: Path) -> None:
    found, _ = opened(tmp_path)
    found.check_log()
    shutil.rmtree(found.layout.log)
    again = pipeline(tmp_path)
    append(again, "web", [b"{}"] * 100)
    with pytest.raises(LedgerError, match="not the one that this ledger knows"):
        again.check_log()
