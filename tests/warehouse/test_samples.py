"""The samples that are about more than rows: what is refused whole, tried again, or refused at start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from penstock.destinations.contract import AnyDestination, Batch, Part
from penstock.errors import TransientError
from penstock.sources.http.body.body_events import BadBody
from penstock.sources.http.body.body_events import events as events_of
from penstock.sources.http.config import LimitsConfig
from penstock.steps.map.config import MapConfig
from penstock.testing.destination import Staging, batch, events
from tests.warehouse.model import ModelTable
from tests.warehouse.targets import ModelTarget


def staged(destination: AnyDestination, folder: Path, *documents: object) -> list[Part]:
    return Staging(destination, folder).stage(events(*documents))


def count(table: ModelTable) -> int:
    return len(table.rows)


def test_6_one_event_of_90_kb_in_an_array_refuses_the_whole_array() -> None:
    body = json.dumps([{"a": 1}, {"a": "x" * 90_000}, {"a": 2}]).encode()
    with pytest.raises(BadBody) as refused:
        list(events_of(body, LimitsConfig(event_bytes=51_200, body_bytes=10_000_000, body_events=1_000)))
    assert (refused.value.status, refused.value.index) == (413, 1)


def test_9_a_table_that_fails_is_tried_again_without_its_neighbour(tmp_path: Path) -> None:
    target = ModelTarget()
    destination = target.destination({"table": "{{ t }}"})
    parts = staged(destination, tmp_path, {"t": "fine"}, {"t": "broken"}, {"t": "fine"})
    target.store.away.add("broken")
    first = {table.table: table for table in destination.write(batch(), parts).tables}
    assert (first["fine"].rows, first["fine"].unavailable) == (2, None)
    assert first["broken"].unavailable is not None
    target.store.away.clear()
    second = {table.table: table for table in destination.write(batch(), parts).tables}
    assert second["fine"].repeated
    assert (second["broken"].rows, second["broken"].repeated) == (1, False)
    assert {name: count(table) for name, table in target.store.tables.items()} == {"fine": 2, "broken": 1}


def test_10_a_destination_that_was_down_has_everything_once_when_it_is_back(tmp_path: Path) -> None:
    target = ModelTarget()
    destination = target.destination({})
    batches: list[tuple[Batch, list[Part]]] = [
        (batch(number), staged(destination, tmp_path, {"n": number})) for number in range(3)
    ]
    target.store.down = True
    for number, parts in batches:
        with pytest.raises(TransientError):
            destination.write(number, parts)
    assert target.store.tables == {}
    target.store.down = False
    for number, parts in batches * 2:
        assert destination.write(number, parts).failures == []
    assert target.store.tables["events"].rows == [{"n": number} for number in range(3)]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"src": "/a", "dst": "/b", "action": "copy"}, ["rule 1", "copy", "unknown action"]),
        ({"src": "/a", "action": "move"}, ["rule 1", "dst"]),
        ({"dst": "/a", "action": "move"}, ["rule 1", "src"]),
        ({"src": "/a", "action": "cast"}, ["rule 1", "type"]),
        ({"action": "cast", "type": "bigint"}, ["rule 1", "src"]),
        ({"action": "remove"}, ["rule 1", "src"]),
        ({"action": "constant", "value": 1}, ["rule 1", "dst"]),
        ({"action": "constant", "dst": "/a"}, ["rule 1", "value"]),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused_at_start_by_its_number(
    rule: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(ValidationError) as refused:
        MapConfig.model_validate({"fields": [{"src": "/x", "dst": "/y"}, rule]})
    for word in words:
        assert word in str(refused.value)


def test_six_records_of_one_key_are_six_in_and_one_written(tmp_path: Path) -> None:
    target = ModelTarget()
    destination = target.destination({"primary_key": ["id"]})
    documents = [*({"id": 1, "n": number} for number in range(6)), {"id": 2}, {"n": 7}]
    parts = staged(destination, tmp_path, *documents)
    (first,) = destination.write(batch(), parts).tables
    (again,) = destination.write(batch(), parts).tables
    for table in (first, again):
        assert table.failures is not None
        assert (table.rows, table.merged, table.failures.num_rows) == (7, 5, 1)
    assert (first.repeated, again.repeated) == (False, True)
    (other,) = destination.write(batch(1), staged(destination, tmp_path, {"id": 1}, {"id": 3})).tables
    assert (other.rows, other.merged) == (2, 0)
