"""``penstock plan``: what events would change, without changing it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.warehouses import Warehouse, duckdb_warehouse

CREATED = 'CREATE TABLE IF NOT EXISTS "events" ("id" BIGINT, "price" DECIMAL(12,2))'


@pytest.fixture
def shop(tmp_path: Path) -> Warehouse:
    return duckdb_warehouse(tmp_path)


def sample(shop: Warehouse, *lines: str, name: str = "sample.ndjson") -> str:
    path = shop.folder / name
    text = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return str(path)


def files(shop: Warehouse) -> dict[str, tuple[int, int]]:
    """Every file of the project with its size and the time it was last written."""
    found = (path for path in shop.folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


@pytest.mark.parametrize("name", ["sample.ndjson", "sample.ndjson.gz"])
def test_a_sample_shows_the_table_that_it_would_make(shop: Warehouse, name: str) -> None:
    path = sample(shop, '{"id":1}', "", '{"id":2,"price":"7"}', name=name)
    ran = shop.penstock("plan", "--route", "warehouse", "--sample", path)
    assert (ran.code, ran.out) == (0, f"-- route warehouse to duckdb, 2 events\n{CREATED};\n")


def test_nothing_is_made_for_it(shop: Warehouse) -> None:
    path = sample(shop, '{"id":1}')
    before = files(shop)
    shop.penstock("plan", "--sample", path)
    assert files(shop) == before


def test_only_what_is_missing_is_planned(shop: Warehouse) -> None:
    shop.deliver({"id": 1})
    path = sample(shop, '{"id":2,"price":1.5}')
    (planned,) = shop.json("plan", "--route", "warehouse", "--sample", path)
    assert planned == {
        "route": "warehouse", "destination": "duckdb", "events": 1, "staged": 1, "skipped": {}, "failed": [],
        "statements": ['ALTER TABLE "events" ADD COLUMN "price" DECIMAL(12,2)'],
    }  # fmt: skip


def test_offline_is_as_if_there_were_no_table(shop: Warehouse) -> None:
    shop.deliver({"id": 1})
    path = sample(shop, '{"id":2,"price":1.5}')
    (planned,) = shop.json("plan", "--route", "warehouse", "--sample", path, "--offline")
    assert planned["statements"] == [CREATED]


def test_nothing_to_change_is_said(shop: Warehouse) -> None:
    shop.deliver({"id": 1})
    ran = shop.penstock("plan", "--route", "warehouse", "--sample", sample(shop, '{"id":2}'))
    assert ran.out.splitlines()[1:] == ["-- nothing to change"]


def test_by_default_it_plans_for_what_waits_in_the_log(shop: Warehouse) -> None:
    shop.deliver({"id": 1})
    shop.append({"id": 2, "new": True}, {"id": 3})
    before = files(shop)
    (planned,) = shop.json("plan", "--route", "warehouse")
    assert planned["events"] == 2
    assert planned["statements"] == ['ALTER TABLE "events" ADD COLUMN "new" BOOLEAN']
    changed = {path for path, seen in files(shop).items() if before.get(path) != seen}
    assert {path for path in changed if "ledger" not in path} == set()
    assert shop.json("offset", "list")[0]["lag"] == 2


def test_a_pipeline_that_never_ran_has_no_log_to_plan_for(shop: Warehouse) -> None:
    ran = shop.penstock("plan")
    assert ran.code == 1
    assert "PEN-ENG-004" in ran.err


def test_an_archive_is_read_file_by_file(shop: Warehouse) -> None:
    day = shop.folder / "archive" / "2026-03-01"
    day.mkdir(parents=True)
    for token, line in (("site", b'{"id":1}\n'), ("other", b'{"id":2,"price":3}\n')):
        name = f"incoming.tok={token}-2026-03-01T08-15-00.123.log.gz"
        (day / name).write_bytes(gzip.compress(line))
    (planned,) = shop.json("plan", "--route", "warehouse", "--archive", str(shop.folder / "archive"))
    assert (planned["events"], planned["statements"]) == (2, [CREATED])
    shop.configured(only_keys=["site"])
    (planned,) = shop.json("plan", "--route", "warehouse", "--archive", str(day))
    assert planned["skipped"] == {"only_keys": 1}
    assert planned["statements"] == ['CREATE TABLE IF NOT EXISTS "events" ("id" BIGINT)']


def test_lines_that_fail_are_counted_and_said(shop: Warehouse) -> None:
    path = sample(shop, '{"id":1}', "nonsense", "[1]")
    ran = shop.penstock("plan", "--route", "warehouse", "--sample", path)
    assert ran.code == 0
    assert "2 events failed in map" in ran.err
    (planned,) = shop.json("plan", "--route", "warehouse", "--sample", path)
    assert sum(kind["count"] for kind in planned["failed"]) == 2
    assert planned["staged"] == 1


def test_a_destination_without_tables_has_nothing_to_plan(shop: Warehouse) -> None:
    ran = shop.penstock("plan", "--route", "audit", "--sample", sample(shop, '{"id":1}'))
    assert (ran.code, ran.out) == (0, "-- route audit to null: nothing to plan\n")
    both = shop.json("plan", "--sample", sample(shop, '{"id":1}'))
    assert [(each["route"], each["statements"] is None) for each in both] == [("warehouse", False), ("audit", True)]


@pytest.mark.parametrize(
    ("to", "statement"),
    [
        (
            {"type": "postgres", "url": "postgresql://nobody@127.0.0.1:1/x"},
            'CREATE TABLE IF NOT EXISTS "public"."events" ("id" bigint, "price" numeric(12,2))',
        ),
        ({"type": "duckdb", "path": "/nowhere/at/all.duckdb"}, CREATED),
    ],
)
def test_offline_needs_no_target(shop: Warehouse, to: dict[str, object], statement: str) -> None:
    other = Warehouse(shop.folder, to).configured()
    path = sample(shop, '{"id":1,"price":2}')
    (planned,) = other.json("plan", "--route", "warehouse", "--sample", path, "--offline")
    assert planned["statements"] == [statement]


def test_a_target_that_is_away_is_an_error_that_says_what_to_do(shop: Warehouse) -> None:
    target = {"type": "postgres", "url": "postgresql://nobody@127.0.0.1:1/x", "connect_timeout": "1s"}
    other = Warehouse(shop.folder, target).configured()
    ran = other.penstock("plan", "--route", "warehouse", "--sample", sample(shop, '{"id":1}'))
    assert (ran.code, ran.out) == (1, "")
    assert "--offline" in ran.err
    assert "nothing to plan" in other.penstock("plan", "--sample", sample(shop, '{"id":1}')).out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--route", "nowhere", "--sample", "SAMPLE"], 2, "warehouse, audit"),
        (["--sample", "missing.ndjson"], 1, "missing.ndjson"),
        (["--archive", "missing"], 1, "missing"),
        (["--archive", "x", "--sample", "SAMPLE"], 2, "one of"),
    ],
)
def test_what_cannot_be_planned_is_said(shop: Warehouse, words: list[str], code: int, said: str) -> None:
    path = sample(shop, '{"id":1}')
    ran = shop.penstock("plan", *(path if word == "SAMPLE" else word for word in words))
    assert ran.code == code
    assert said in ran.err


def test_it_starts_no_spark(shop: Warehouse) -> None:
    sample(shop, '{"id":1}')
    script = (
        "import sys\nfrom penstock.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "print('pyspark' in sys.modules, file=sys.stderr)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, "plan", "--sample", "sample.ndjson", "--json"],
        cwd=shop.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr.splitlines()[-1] == "False"
    assert json.loads(ran.stdout)[0]["statements"]
