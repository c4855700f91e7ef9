"""Every case on the model, on DuckDB and on PostgreSQL, delivered each way that it speaks of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.database import Database
from tests.warehouse.case import Case, Delivery, Engine
from tests.warehouse.cases import ALL
from tests.warehouse.running import check, run
from tests.warehouse.targets import DuckdbTarget, ModelTarget, PostgresTarget

RUNS = [(case, delivery) for case in ALL for delivery in case.expected]


def on(engine: Engine) -> list[object]:
    return [
        pytest.param(case, delivery, id=f"{case.name}-{delivery}") for case, delivery in RUNS if engine in case.engines
    ]


@pytest.mark.parametrize(("case", "delivery"), on(Engine.MODEL))
def test_on_the_model(case: Case, delivery: Delivery, tmp_path: Path) -> None:
    target = ModelTarget()
    check(case, case.expected[delivery], run(case, delivery, target, tmp_path / "stage"), target)


def in_frames(engine: Engine) -> list[object]:
    return [
        pytest.param(case, delivery, id=f"{case.name}-{delivery}")
        for case, delivery in RUNS
        if delivery is not Delivery.STREAM and len(case.events) > 1 and engine in case.engines and not case.one_frame
    ]


@pytest.mark.parametrize(("case", "delivery"), in_frames(Engine.MODEL))
def test_it_does_not_matter_how_the_log_cuts_a_batch(case: Case, delivery: Delivery, tmp_path: Path) -> None:
    target = ModelTarget()
    check(case, case.expected[delivery], run(case, delivery, target, tmp_path / "stage", frame=1), target)


@pytest.mark.parametrize(("case", "delivery"), in_frames(Engine.DUCKDB))
def test_nor_does_it_on_duckdb(case: Case, delivery: Delivery, tmp_path: Path) -> None:
    target = DuckdbTarget(tmp_path / "warehouse.duckdb")
    check(case, case.expected[delivery], run(case, delivery, target, tmp_path / "stage", frame=1), target)


@pytest.mark.parametrize(("case", "delivery"), on(Engine.DUCKDB))
def test_on_duckdb(case: Case, delivery: Delivery, tmp_path: Path) -> None:
    target = DuckdbTarget(tmp_path / "warehouse.duckdb")
    check(case, case.expected[delivery], run(case, delivery, target, tmp_path / "stage"), target)


@pytest.mark.parametrize(("case", "delivery"), on(Engine.POSTGRES))
def test_on_postgresql(case: Case, delivery: Delivery, tmp_path: Path, database: Database) -> None:
    target = PostgresTarget(database)
    check(case, case.expected[delivery], run(case, delivery, target, tmp_path / "stage"), target)


def test_cases_have_names_of_their_own() -> None:
    names = [case.name for case in ALL]
    assert sorted(set(names)) == sorted(names)
