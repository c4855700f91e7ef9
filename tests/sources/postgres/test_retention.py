"""Retention takes the records that carry a quiet table's position, and the stream's; the source goes on nonetheless."""

from __future__ import annotations

from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from threading import Event
from typing import Any

import pytest

from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog
from penstock.record import Mode, Op, Record
from penstock.testing.waiting import HANG, eventually
from tests.sources.postgres.rig import Mirror, Rig

EVERY_APPEND_CLOSES = 100
"""Bytes of a segment that no frame fits in with another: the one before it is closed by every append."""

LIMITS: dict[str, dict[str, Any]] = {
    "by age": {"max_age": "1s"},
    "by size": {"max_age": None, "max_bytes": 1},
}
TABLES = ("public.busy", "public.quiet")


@pytest.fixture(params=LIMITS)
def followed(request: pytest.FixtureRequest, rig: Rig) -> Rig:
    """A table that will be written to and one that will not, both copied, in a log of the smallest segments."""
    rig.log_options = {"segment_bytes": EVERY_APPEND_CLOSES, "retention": LIMITS[request.param]}
    rig.ask(*(f"CREATE TABLE {t} (id int PRIMARY KEY, v int)" for t in ("busy", "quiet")))
    rig.ask(*(f"INSERT INTO {t} SELECT i, 0 FROM generate_series(1, 5) i" for t in ("busy", "quiet")))
    rig.catch_up()
    return rig


def change(rig: Rig, process: BaseProcess, times: int) -> None:
    """Change the busy table, each time after the last change is in the log, or until the source is dead."""
    for n in range(times):
        known = rig.log_end()
        rig.ask(f"UPDATE busy SET v = v + 1 WHERE id = {1 + n % 5}")
        eventually(lambda known=known: rig.log_end() > known or not process.is_alive(), "the change")  # type: ignore[misc]
        if not process.is_alive():
            return


def retain(rig: Rig) -> list[Record]:
    """Let retention take all it may; what the log had before."""
    log = LocalLog(rig.folder / "log", LogConfig.model_validate(rig.log_options))
    had = rig.records()
    assert log.apply_retention({0: log.bounds(0).end}, datetime(2100, 1, 1, tzinfo=UTC))
    assert not {r.namespace for r in rig.records()} & {"public.quiet"}
    return had


def since(rig: Rig, had: list[Record]) -> list[Record]:
    return [record for record in rig.records() if record.offset > had[-1].offset]


def is_right(rig: Rig, records: list[Record]) -> bool:
    """Whether a mirror that took these records, strictly, ends like the tables."""
    mirror = Mirror()
    for record in records:
        mirror.apply(record)
    return all(mirror.rows(table) == rig.rows(table) for table in TABLES)


@pytest.mark.parametrize(
    "point",
    [
        "log.roll@3",  # the segment is still open
        "log.append.before_write@3",  # it was closed, and the next one has nothing
        "log.append.after_fsync@3",
        "postgres.stream.appended@3",
    ],
)
def test_killed_behind_a_closed_segment_that_retention_then_takes(
    followed: Rig, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_FAULTS", f"{point}=kill")
    with followed.child() as process:
        change(followed, process, 10)
        process.join(HANG)
        assert process.exitcode == -9
    had = retain(followed)
    followed.ask("INSERT INTO quiet VALUES (100, 1)", "DELETE FROM busy WHERE id = 1")
    followed.source().run(Event(), once=True)
    added = since(followed, had)
    assert {record.mode for record in added} == {Mode.SYNC}, "a table was copied again"
    assert is_right(followed, [*had, *added])


def test_that_changes_of_a_table_were_missed_outlives_retention(followed: Rig) -> None:
    with followed.child(tables=["public.busy"]) as process:
        eventually(
            lambda: any(record.op is Op.NOOP and record.mode is Mode.COPY for record in followed.records()), "left"
        )
        change(followed, process, 3)
        process.kill()
        process.join()
    followed.ask("DELETE FROM quiet WHERE id = 2")
    had = retain(followed)
    followed.source().run(Event(), once=True)
    added = since(followed, had)
    quiet = [record.op for record in added if record.namespace == "public.quiet"]
    assert quiet == [Op.COMMAND, *[Op.INSERT] * 4, Op.NOOP]
    assert is_right(followed, [*had, *added])
