"""The log says where the source was: after a restart, without the summary, after compaction and retention."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import pytest

from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog
from penstock.log.maintenance.compaction import compact
from penstock.record import Mode, Op
from penstock.sources.postgres.catalog.table_layout import Column, Layout
from penstock.sources.postgres.catalog.value_kinds import Kind
from penstock.sources.postgres.progress import CopiedColumn, CopiedTable, ProgressStore, SourceProgress
from penstock.sources.postgres.stream_position import ChangePosition
from tests.sources.postgres.rig import Rig

TABLES = ("public.a", "public.b", "public.idle")
SMALL_SEGMENTS = {"segment_bytes": 2000, "retention": {"max_age": "1s"}}


@pytest.fixture
def busy(rig: Rig) -> Rig:
    """Tables that were copied and changed, in a log of many small segments."""
    rig.log_options = SMALL_SEGMENTS
    rig.ask(*(f"CREATE TABLE {t} (id int PRIMARY KEY, v int)" for t in ("a", "b", "idle")))
    rig.ask(*(f"INSERT INTO {t} SELECT i, 0 FROM generate_series(1, 5) i" for t in ("a", "b", "idle")))
    rig.catch_up()
    for n in range(10):
        rig.ask(f"UPDATE a SET v = {n}", f"UPDATE b SET v = {n} WHERE id = 1", f"DELETE FROM b WHERE id = {n}")
        rig.catch_up()
    return rig


def log_of(rig: Rig) -> LocalLog:
    return LocalLog(rig.folder / "log", LogConfig.model_validate(rig.log_options))


def book_of(rig: Rig, slot: str = "penstock") -> SourceProgress:
    log = log_of(rig)
    with log.writer("pg") as writer:
        return ProgressStore(rig.folder / "state" / "positions.json", slot, log, writer).progress


def forget_summary(rig: Rig) -> None:
    (rig.folder / "state" / "positions.json").unlink()


def goes_on(rig: Rig) -> None:
    """The next change, and only that, is added."""
    rig.ask("INSERT INTO idle VALUES (100, 1)", "UPDATE a SET v = 77 WHERE id = 1")
    assert [(r.namespace, r.op, r.mode) for r in rig.catch_up()] == [
        ("public.idle", Op.INSERT, Mode.SYNC), ("public.a", Op.UPDATE, Mode.SYNC),
    ]  # fmt: skip


def test_without_the_summary_the_log_tells_how_far_it_is_and_tables_are_copied_again(busy: Rig) -> None:
    kept = book_of(busy)
    forget_summary(busy)
    found = book_of(busy)
    assert found.taken == kept.taken
    assert found.taken.commit > 0
    assert {name: t.complete for name, t in found.tables.items()} == dict.fromkeys(TABLES, False)
    idle = kept.tables["public.idle"]
    columns = tuple(replace(column, number=0) for column in idle.columns)
    assert found.tables["public.idle"] == replace(idle, complete=False, membership="", columns=columns)
    # Saved as what it is: once is not enough.
    assert not book_of(busy).followed_tables()
    assert sorted({r.namespace for r in busy.catch_up() if r.op is Op.COMMAND}) == list(TABLES)
    goes_on(busy)


def test_a_slot_that_is_not_the_one_that_was_left_costs_nothing_if_the_summary_is_lost_too(busy: Rig) -> None:
    forget_summary(busy)
    busy.ask("SELECT pg_drop_replication_slot('penstock')", "DELETE FROM idle WHERE id = 1")
    busy.ask("INSERT INTO idle VALUES (50, 1)", "SELECT pg_create_logical_replication_slot('penstock', 'pgoutput')")
    busy.catch_up()
    assert busy.is_mirrored(*TABLES)


def test_after_compaction_it_goes_on_with_and_without_the_summary(busy: Rig) -> None:
    log = log_of(busy)
    (done,) = compact(log, {0: log.bounds(0).end})
    assert done.dropped > 20
    assert {r.namespace for r in busy.records() if r.mode is Mode.COMPLETE} == set(TABLES)
    goes_on(busy)
    forget_summary(busy)
    assert sorted({r.namespace for r in busy.catch_up() if r.op is Op.COMMAND}) == list(TABLES)
    busy.ask("DELETE FROM idle WHERE id = 100")
    assert [r.op for r in busy.catch_up()] == [Op.DELETE]


def test_a_summary_that_has_only_the_names_of_columns_is_read(busy: Rig) -> None:
    summary = busy.folder / "state" / "positions.json"
    content = json.loads(summary.read_text())
    for table in content["tables"].values():
        table["columns"] = [column["name"] for column in table["columns"]]
    summary.write_text(json.dumps(content))
    assert book_of(busy).copied_columns("public.a") == (CopiedColumn("id"), CopiedColumn("v"))
    goes_on(busy)


def test_after_retention_the_summary_still_knows_tables_that_never_change(busy: Rig) -> None:
    log = log_of(busy)
    assert log.apply_retention({0: log.bounds(0).end}, datetime(2100, 1, 1, tzinfo=UTC))
    assert "public.idle" not in {r.namespace for r in busy.records()}
    before = busy.log_end()
    busy.ask("INSERT INTO idle VALUES (100, 1)")
    busy.source().run(Event(), once=True)
    assert busy.log_end() == before + 1


def test_without_a_summary_what_retention_has_removed_is_copied_again_after_a_truncate(busy: Rig) -> None:
    log = log_of(busy)
    log.apply_retention({0: log.bounds(0).end}, datetime(2100, 1, 1, tzinfo=UTC))
    (busy.folder / "state" / "positions.json").write_text("{damaged")
    before = busy.log_end()
    busy.source().run(Event(), once=True)
    found = [record for record in busy.records() if record.offset >= before and record.namespace == "public.idle"]
    assert [str(record.op) for record in found] == ["command", *["insert"] * 5, "noop"]


def test_a_summary_of_another_log_is_not_believed(busy: Rig, tmp_path: Path) -> None:
    other = Rig(busy.url, tmp_path / "other", busy.log_options)
    other.context.state_dir.joinpath("positions.json").write_bytes(
        (busy.folder / "state" / "positions.json").read_bytes()
    )
    assert book_of(other) == SourceProgress("penstock")


def test_another_slot_starts_anew_and_says_so(busy: Rig) -> None:
    book = book_of(busy, slot="second")
    assert book.taken == ChangePosition()
    assert not book.is_used()
    assert all(book.may_have_entries(name) for name in TABLES)
    found = busy.catch_up(slot="second")
    assert sorted(r.namespace for r in found if r.op is Op.COMMAND) == list(TABLES)
    assert busy.is_mirrored(*TABLES)
    busy.ask("DELETE FROM a WHERE id = 2")
    busy.catch_up(slot="second")
    assert busy.is_mirrored(*TABLES)
    busy.ask("SELECT pg_drop_replication_slot('second')")


def test_a_table_half_copied_is_not_taken_for_a_whole_one() -> None:
    book = SourceProgress("s")
    layout = Layout(7, "public.t", (Column("id", "integer", Kind.NUMBER),))
    book.note_copy(layout, 100, complete=False)
    assert not book.has_copy("public.t", 7)
    book.note_copy(layout, 100, complete=True)
    assert book.has_copy("public.t", 7)
    assert not book.has_copy("public.t", 8)
    assert book.tables["public.t"] == CopiedTable("s", 7, 100, True, (CopiedColumn("id", "integer"),))


def test_a_mirror_made_from_a_compacted_log_is_right(busy: Rig) -> None:
    """A table that was begun again keeps the word that voids what came before."""
    busy.ask("DELETE FROM a WHERE id = 3")
    busy.catch_up(slot="second")
    busy.ask("TRUNCATE b", "INSERT INTO b VALUES (9, 9)")
    busy.catch_up(slot="second")
    log = log_of(busy)
    compact(log, {0: log.bounds(0).end})
    rows: dict[str, dict[str, object]] = {}
    for record in busy.records():
        table = rows.setdefault(record.namespace, {})
        if record.op is Op.COMMAND:
            table.clear()
        elif record.op is Op.DELETE:
            table.pop(record.key or "", None)
        elif record.op is not Op.NOOP:
            table[record.key or ""] = json.loads(record.data or b"")
    for name in TABLES:
        expected = [row for (row,) in busy.ask(f"SELECT to_json(t) FROM {name} t ORDER BY id")]
        assert sorted(rows[name].values(), key=lambda row: row["id"]) == expected  # type: ignore[index]
    busy.ask("SELECT pg_drop_replication_slot('second')")
