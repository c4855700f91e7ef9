"""The failed store: original bytes, exactly once, whatever a crash left in the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.engine.failed.failed_items import FailedItem
from penstock.engine.failed.failed_store import FailedStore
from penstock.engine.ledger import Extent
from penstock.errors import PenstockError
from penstock.record import Record, entries, placed, records


def failed(*data: bytes, first: int = 0) -> list[FailedItem]:
    batch = placed(entries(Record(d, namespace="web", headers={"token": "site"}) for d in data), 1, first)
    return [FailedItem(record, 0, "map", "bad", f"no {i}") for i, record in enumerate(records(batch))]


def test_entries_come_back_with_their_bytes_reason_and_place(tmp_path: Path) -> None:
    store = FailedStore(tmp_path)
    original = '{"eventn_ctx": {"event_id": "e1"}, "ü": 2.50}'.encode()
    extent = store.append("shop", 7, Extent(), failed(original, b"\xff\x00", first=40))
    first, second = store.read("shop", extent)
    assert (first.id, first.batch, first.step, first.code, first.error) == (0, 7, "map", "bad", "no 0")
    assert (first.record.data, first.record.offset, first.event_id) == (original, 40, "e1")
    assert first.record.headers == {"token": "site"}
    assert (second.id, second.record.data, second.event_id) == (1, b"\xff\x00", None)
    assert store.path("shop").name == "failed.dst=shop.log"


def test_what_a_crash_left_behind_the_extent_is_not_there(tmp_path: Path) -> None:
    store = FailedStore(tmp_path)
    extent = store.append("shop", 1, Extent(), failed(b"{}"))
    store.append("shop", 2, extent, failed(b"[1]", b"[2]"))  # killed before the ledger's commit
    with store.path("shop").open("ab") as file:
        file.write(b'{"torn')
    assert [e.record.data for e in store.read("shop", extent)] == [b"{}"]
    again = store.append("shop", 2, extent, failed(b"[1]", b"[2]"))
    assert [(e.id, e.record.data) for e in store.read("shop", again)] == [(0, b"{}"), (1, b"[1]"), (2, b"[2]")]


@pytest.mark.parametrize("counted", [0, 1])
def test_what_a_newer_ledger_counted_is_kept_beside_the_file(tmp_path: Path, counted: int) -> None:
    store = FailedStore(tmp_path)
    older = store.append("shop", 1, Extent(), failed(b"{}")) if counted else Extent()
    store.append("shop", 2, older, failed(b"[1]", b"[2]"))
    aside = store.set_aside("shop", older)
    assert aside is not None
    store.append("shop", 2, older, failed(b"[3]"))
    assert [json.loads(line)["original"] for line in aside.read_text().splitlines()] == ["[1]", "[2]"]
    assert [e.record.data for e in store.read("shop", older)] == [b"{}"] * counted


def test_a_route_without_failures_has_no_entries(tmp_path: Path) -> None:
    assert list(FailedStore(tmp_path).read("shop", Extent())) == []


def test_a_file_that_lost_what_the_ledger_counts_is_refused_and_left_alone(tmp_path: Path) -> None:
    store = FailedStore(tmp_path)
    extent = store.append("shop", 1, Extent(), failed(b"{}"))
    store.path("shop").unlink()
    with pytest.raises(PenstockError, match="the ledger counts"):
        store.append("shop", 2, extent, failed(b"[1]"))
    with pytest.raises(PenstockError, match="Put the file back"):
        list(store.read("shop", extent))
    assert not store.path("shop").exists()


def test_items_of_a_record_keep_it_once_and_come_back_with_it(tmp_path: Path) -> None:
    large = Record(b'{"a": "%s"}' % (b"x" * 10_000), partition=0, offset=3)
    other = Record(b"{}", partition=0, offset=4)
    items = [FailedItem(large, n, "set", "bad", f"no {n}") for n in range(1, 101)]
    store = FailedStore(tmp_path)
    first = store.append("shop", 1, Extent(), [*items, FailedItem(other, 0, "set", "bad", "no")])
    extent = store.append("shop", 2, first, items)
    assert extent.bytes < 100_000
    found = list(store.read("shop", extent))
    assert [(each.record, each.item) for each in found[:101]] == [*((large, n) for n in range(1, 101)), (other, 0)]
    assert [(each.id, each.record, each.item) for each in store.read("shop", extent, after=first)] == [
        (101 + n, large, n + 1) for n in range(100)
    ]
