"""A row ends at what was acknowledged last, whatever partitions its records are in, and wherever batches are cut."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event

import pytest

from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.halts import Halted
from penstock.engine.delivery.log_gaps import open_route
from penstock.engine.delivery.task import stage_ranges
from penstock.engine.ledger import Operator
from penstock.engine.operate.offset_control import plan_rewind, rewind
from penstock.engine.pipeline import Pipeline
from penstock.engine.route_sources import replay_source
from penstock.log.read_ranges import next_offsets
from penstock.log.record_order import ends
from penstock.record import Record, entries
from penstock.testing.mirror import Source
from tests.destinations.ga4.simulator import SECRET, STREAM, google_analytics
from tests.engine.projects import pipeline
from tests.support.duckdb_file import open_file

CONFIG = """\
name: shop
sources:
  web: {{type: file, path: ./web.ndjson}}
routes:
  lake:
    from: web
    {options}
    to: {{type: duckdb, path: ./lake.duckdb, {load}}}
"""
IDS, TIMES = 20, 6
WHO = Operator("ada", "")


def project(folder: Path, options: str = "namespace: '/.*/'", key: str = "") -> Pipeline:
    return pipeline(folder, CONFIG.format(options=options, load=f"primary_key: [id]{key}"))


def event(number: int, value: object) -> Record:
    return Record(json.dumps({"id": number, "value": value}).encode(), namespace="web")


def append_in_turns(shop: Pipeline, turns: range) -> None:
    """Each value of an id goes to another worker than the one before it, and the lower worker is not always first."""
    with shop.log.writer("web", 0) as zero, shop.log.writer("web", 1) as one:
        for value in turns:
            for number in range(IDS):
                (zero if (value + number // 3) % 2 else one).append(entries([event(number, value)]))


def deliver(shop: Pipeline, most: int | None = None, limit: int | None = None) -> None:
    """Batch by batch, as Spark would ask for them; at most ``limit`` batches."""
    plan = shop.plan("lake")
    plan.stage_dir.mkdir(parents=True, exist_ok=True)
    open_route(shop.log, shop.ledger, "lake", plan.sources)
    delivery = Delivery(plan, plan.destination(), shop.log, shop.ledger, shop.failed_store, Event())
    while limit is None or limit > 0:
        limit = None if limit is None else limit - 1
        start = {p: position.committed for p, position in shop.ledger.offsets("lake").items()}
        end = next_offsets(shop.log, start, ends(shop.log, plan.sources), most, None)
        if end == start:
            return
        ranges = {p: (start.get(p, 0), stop) for p, stop in end.items() if start.get(p, 0) < stop}
        delivery.deliver(stage_ranges(plan, shop.log, ranges))


def rows(folder: Path) -> dict[int, int]:
    with open_file(folder / "lake.duckdb", read_only=True) as lake:
        return dict(lake.execute("SELECT id, value FROM events").fetchall())


@pytest.mark.parametrize("most", [None, 1, 7, 64])
@pytest.mark.parametrize("key", ["", ", version_column: version"])
def test_the_last_value_stays_however_many_records_a_batch_has(tmp_path: Path, most: int | None, key: str) -> None:
    """Where no record has a version, the last one wins too."""
    shop = project(tmp_path, key=key)
    turns = range(TIMES if most != 1 else 2)
    append_in_turns(shop, turns)
    deliver(shop, most)
    assert rows(tmp_path) == dict.fromkeys(range(IDS), turns[-1])


def test_the_last_value_stays_where_a_step_makes_many_rows_of_a_record(tmp_path: Path) -> None:
    shop = project(tmp_path, options="steps: [{split: value}]")
    with shop.log.writer("web", 0) as zero, shop.log.writer("web", 1) as one:
        for turn in range(TIMES):
            batch = entries(event(number, [100 + turn, turn]) for number in range(IDS))
            (one if turn % 2 == 0 else zero).append(batch)
    deliver(shop)
    assert rows(tmp_path) == dict.fromkeys(range(IDS), TIMES - 1)


def test_google_analytics_is_sent_the_last_value_last(tmp_path: Path) -> None:
    with google_analytics() as service:
        ga4 = f"""
      type: ga4
      measurement_id: {STREAM}
      api_secret: {SECRET}
      event_name: seen
      user_id: /id
      params: [/value]
      user_properties: {{plan: /value}}
      endpoint: {service.endpoint}"""
        shop = pipeline(
            tmp_path, CONFIG.format(options="namespace: '/.*/'", load="").rpartition("to:")[0] + "to:" + ga4
        )
        append_in_turns(shop, range(TIMES))
        deliver(shop)
        sent: dict[str, list[int]] = {}
        for each in service.events:
            sent.setdefault(each["user_id"], []).append(each["params"]["value"])
            assert each["user_properties"] == {"plan": {"value": each["params"]["value"]}}
        assert sent == {str(number): list(range(TIMES)) for number in range(IDS)}
        ids = {each["params"]["penstock_id"] for each in service.events}
        identities = [owner.identity[:12] for owner in shop.log.partitions().values()]
        assert len(ids) == IDS * TIMES
        assert all(each.startswith(tuple(identities)) for each in ids)


def test_files_carry_what_puts_their_records_in_order(tmp_path: Path) -> None:
    to = "to: {type: file, path: ./out, columns: record}\n"
    shop = pipeline(tmp_path, CONFIG.format(options="namespace: '/.*/'", load="").rpartition("to:")[0] + to)
    append_in_turns(shop, range(TIMES))
    deliver(shop)
    written = [json.loads(line) for file in (tmp_path / "out").iterdir() for line in file.read_text().splitlines()]
    assert len({record["partition"] for record in written}) == 2
    in_order = sorted(written, key=lambda record: (record["timestamp"], record["partition"], record["offset"]))
    assert [(record["data"]["value"], record["data"]["id"]) for record in in_order] == [
        (value, number) for value in range(TIMES) for number in range(IDS)
    ]


def test_a_mirror_applies_changes_of_several_partitions_one_after_the_other(tmp_path: Path) -> None:
    shop = pipeline(tmp_path, CONFIG.format(options="namespace: '/.*/'", load="load: mirror"))
    users = Source()
    with shop.log.writer("web", 0) as zero, shop.log.writer("web", 1) as one:
        for writer, change in (
            (one, users.insert(id=1, name="a")),
            (zero, users.update(id=1, name="b")),
            (one, users.delete(id=1)),
            (zero, users.insert(id=1, name="c")),
            (zero, users.insert(id=2, name="x")),
            (one, users.update(id=2, name="y")),
            (zero, users.delete(id=2)),
            (one, users.insert(id=3, name="z")),
            (zero, users.update({"id": 3}, id=4, name="z")),
        ):
            writer.append(entries([change]))
    deliver(shop)
    with open_file(tmp_path / "lake.duckdb", read_only=True) as lake:
        assert lake.execute("SELECT id, name FROM users ORDER BY 1").fetchall() == [(1, "c"), (4, "z")]


@pytest.mark.parametrize("partition", [0, 1])
def test_a_rewind_of_one_partition_takes_the_others_back_to_the_same_moment(tmp_path: Path, partition: int) -> None:
    shop = project(tmp_path)
    append_in_turns(shop, range(TIMES))
    deliver(shop, 50)
    found = plan_rewind(shop, "lake", 30, partition)
    assert {each.partition for each in found} == {0, 1}
    oldest = shop.log.reader(partition).stamp_at(30)
    for each in found:
        assert shop.log.reader(each.partition).stamp_at(each.start) >= oldest
        assert shop.log.reader(each.partition).stamp_at(each.start - 1) < oldest
    rewind(shop, found, WHO)
    deliver(shop, 9)
    assert rows(tmp_path) == dict.fromkeys(range(IDS), TIMES - 1)


def test_a_rewind_takes_back_what_was_replayed_since(tmp_path: Path) -> None:
    """A replayed record is newer than what was there when it was replayed, also after a rewind to a time."""
    shop = project(tmp_path)
    append_in_turns(shop, range(2))
    with shop.log.writer(replay_source("lake")) as replays:
        replays.append(entries([event(3, 100)]))
    deliver(shop)
    assert rows(tmp_path)[3] == 100
    found = plan_rewind(shop, "lake", 5, 1)
    assert {each.source for each in found} == {"web", replay_source("lake")}
    rewind(shop, found, WHO)
    deliver(shop)
    assert rows(tmp_path)[3] == 100


@pytest.mark.parametrize("key", [", version_column: value"])
def test_where_the_order_does_not_decide_a_rewind_moves_one_partition_only(tmp_path: Path, key: str) -> None:
    shop = project(tmp_path, key=key)
    append_in_turns(shop, range(TIMES))
    deliver(shop)
    assert [each.partition for each in plan_rewind(shop, "lake", 30, 1)] == [1]


def test_a_route_stops_at_the_record_that_came_first_in_whichever_partition(tmp_path: Path) -> None:
    shop = project(tmp_path, options="on_error: stop")
    with shop.log.writer("web", 0) as zero, shop.log.writer("web", 1) as one:
        zero.append(entries([event(1, 1)]))
        one.append(entries([event(2, 1)]))
        one.append(entries([Record(b"no JSON", namespace="web")]))
        zero.append(entries([event(2, 2)]))
        zero.append(entries([Record(b"no JSON either", namespace="web")]))
    with pytest.raises(Halted):
        deliver(shop)
    halt = shop.ledger.standing("lake").halt
    assert halt is not None
    assert (halt.partition, halt.offset) == (1, 1)
    assert rows(tmp_path) == {1: 1, 2: 1}


def test_what_is_acknowledged_in_one_partition_does_not_change_the_order_of_the_rest(tmp_path: Path) -> None:
    shop = project(tmp_path)
    append_in_turns(shop, range(TIMES))
    open_route(shop.log, shop.ledger, "lake", shop.plan("lake").sources)
    shop.ledger.acknowledge("lake", 1, (4, 6), WHO, None, False)
    shop.ledger.acknowledge("lake", 0, (7, 8), WHO, None, False)
    deliver(shop)
    assert rows(tmp_path) == dict.fromkeys(range(IDS), TIMES - 1)
    assert shop.ledger.totals("lake").skipped == 3
