"""PostgreSQL keeps a row in a page of 8 KB: what has no room there is in ``_unmapped``, and no record fails for it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.destinations.sql.load.all_or_nothing import write_all_or_nothing
from penstock.testing.destination import batch, events
from tests.destinations.postgres.test_postgres_destination import Warehouse
from tests.support.database import Database
from tests.warehouse.running import NoteBook

STAYING = {"id", "_timestamp", "eventn_ctx_event_id"}


def event(number: int, fields: int, width: int, prefix: str = "f") -> dict[str, Any]:
    # Half of it is easy to compress.
    digits = str(random.Random(number).randrange(10 ** (width + 8)))
    own = {f"{prefix}{n:04}": (f"{number}-{n}-" + ("x" * width if n % 2 else digits))[:width] for n in range(fields)}
    about = {"_timestamp": "2026-11-15T08:05:26Z", "eventn_ctx": {"event_id": f"e{number}"}}
    return {"id": number, **about, **own}


def rows(database: Database) -> list[dict[str, Any]]:
    """Every row as an object without its NULLs."""
    found = database.ask("SELECT to_jsonb(e) - '_unmapped', _unmapped FROM events e ORDER BY id")
    there = [({name: v for name, v in row.items() if v is not None}, aside or {}) for row, aside in found]
    assert all(not row.keys() & aside.keys() for row, aside in there), "a value is in two places"
    assert all(row.keys() >= STAYING for row, _ in there)
    return [{**row, **aside} for row, aside in there]


def check(database: Database, sent: list[dict[str, Any]]) -> None:
    """Nothing is lost: each value is in its column or in ``_unmapped``."""
    found = rows(database)
    assert len(found) == len(sent)
    for row, document in zip(found, sent, strict=True):
        fields = {name: value for name, value in document.items() if name not in ("eventn_ctx", "_timestamp")}
        assert row["eventn_ctx_event_id"] == document["eventn_ctx"]["event_id"]
        assert {name: row.get(name) for name in fields} == fields


@pytest.mark.parametrize("width", [6, 10, 20, 23, 24, 33, 127, 300])
def test_an_event_of_980_fields_loads_and_loses_nothing(database: Database, tmp_path: Path, width: int) -> None:
    sent = [event(number, 980, width) for number in range(3)]
    (receipt,) = Warehouse(database, tmp_path).load(*sent)
    assert (receipt.rows, receipt.failures) == (3, None)
    check(database, sent)
    ((columns,),) = database.ask("SELECT count(*) FROM jsonb_object_keys((SELECT to_jsonb(e) FROM events e LIMIT 1))")
    assert columns == 984
    ((kept,),) = database.ask(
        "SELECT count(*) FROM jsonb_each((SELECT jsonb_strip_nulls(to_jsonb(e)) FROM events e LIMIT 1))"
    )
    # As many values as a page has room for stay in their columns.
    assert kept >= min(983, 7_700 // (width + 1 if width < 24 else 27))


def test_fields_of_every_kind_and_width_load(database: Database, tmp_path: Path) -> None:
    def value(n: int) -> Any:
        return [n * 1.25, n % 2 == 0, 10**n % (2**62), "y" * (n % 140), [n], f"{n}é" * 3][n % 6]

    sent = [{**event(number, 0, 0), **{f"v{n:04}": value(n) for n in range(980)}} for number in range(2)]
    (receipt,) = Warehouse(database, tmp_path).load(*sent)
    assert (receipt.rows, receipt.failures) == (2, None)
    for row, document in zip(rows(database), sent, strict=True):
        for n in range(980):
            name = f"v{n:04}"
            found = row.get(name)
            wanted = document[name]
            assert (json.loads(found) if isinstance(found, str) and n % 6 == 4 else found) == wanted, name


def test_an_event_of_1500_fields_loads(database: Database, tmp_path: Path) -> None:
    sent = [event(1, 1_500, 12)]
    (receipt,) = Warehouse(database, tmp_path, max_columns=1_550).load(*sent)
    assert (receipt.rows, receipt.failures) == (1, None)
    check(database, sent)


def test_a_row_that_grows_by_merging_keeps_everything(database: Database, tmp_path: Path) -> None:
    warehouse = Warehouse(database, tmp_path, primary_key=["id"])
    first, other = [event(number, 600, 12, "a") for number in (1, 2)]
    warehouse.load(first, other)
    second = event(1, 380, 12, "b")
    (receipt,) = warehouse.load(second, event(2, 1, 4, "b"))
    assert (receipt.rows, receipt.failures) == (2, None)
    check(database, [{**first, **second}, {**other, **event(2, 1, 4, "b")}])


def test_events_that_are_too_large_only_together_are_merged(database: Database, tmp_path: Path) -> None:
    warehouse = Warehouse(database, tmp_path, primary_key=["id"])
    first, second = event(1, 500, 12, "a"), event(1, 480, 12, "b")
    (receipt,) = warehouse.load(first, second)
    assert (receipt.rows, receipt.failures) == (2, None)
    check(database, [{**first, **second}])


def test_a_value_that_went_aside_for_its_width_is_replaced_by_a_newer_one(database: Database, tmp_path: Path) -> None:
    warehouse = Warehouse(database, tmp_path, primary_key=["id"])
    warehouse.load(event(1, 980, 12))
    newer = event(1, 980, 3)
    (receipt,) = warehouse.load(newer)
    assert (receipt.rows, receipt.failures) == (1, None)
    check(database, [newer])


def test_a_row_that_grows_by_merging_does_not_stop_a_route_either(database: Database, tmp_path: Path) -> None:
    warehouse = Warehouse(database, tmp_path, primary_key=["id"])
    first, second = event(1, 600, 12, "a"), event(1, 380, 12, "b")
    warehouse.load(first)
    parts = warehouse.staging.stage(events(second))
    receipt = write_all_or_nothing(warehouse.destination, batch(9), parts, NoteBook())
    assert receipt.rows == 1
    check(database, [{**first, **second}])


def test_an_engine_refusal_for_another_reason_still_fails_its_row(database: Database, tmp_path: Path) -> None:
    warehouse = Warehouse(database, tmp_path)
    warehouse.load(event(1, 600, 4))
    database.ask("ALTER TABLE events ADD CHECK (f0000 <> 'bad')")
    (receipt,) = warehouse.load({**event(2, 600, 4), "f0000": "bad"}, event(3, 600, 4))
    assert receipt.rows == 1
    assert receipt.failures is not None
    assert "check constraint" in receipt.failures.column("message")[0].as_py()
