"""A mirror that is added after retention has taken the beginning of the log: its rows would never come."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.config.loading import load
from penstock.log.local_log import LocalLog
from penstock.record import Record, entries
from penstock.testing.mirror import Source
from tests.engine.copies import Site
from tests.support.duckdb_file import open_file

ONE = """\
name: shop
data_dir: ./data
log: {segment_bytes: 4KB, retention: {max_bytes: 4KB}}
sources:
  web: {type: file, path: ./web.ndjson}
routes:
  a:
    from: web
    to: {type: duckdb, path: ./first.duckdb, load: mirror}
"""
LATE = """\
  late:
    from: web
    to: {type: duckdb, path: ./warehouse.duckdb, load: mirror}
"""
USERS = Source({"n": "bigint", "pad": "text"}, key=["n"])


def append(site: Site, *records: Record) -> None:
    config = load(site.folder / "pipeline.yaml")
    with LocalLog(site.data / "log", config.log).writer("web", 0) as writer:
        for record in records:
            writer.append(entries([record]))


def begin_with_what_there_is(said: str) -> None:
    (verb,) = re.findall(r"penstock (offset rewind .*)", said)
    ran = CliRunner().invoke(app, [*verb.split(), "--yes"])
    assert ran.exit_code == 0, ran.stderr


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.chdir(tmp_path)
    site = Site(tmp_path, ONE)
    append(site, *(USERS.insert(n=n, pad="x" * 500) for n in range(40)))
    assert site.deliver() == ""
    return site


def test_a_mirror_that_would_begin_in_the_middle_halts_until_its_source_copies_again(site: Site) -> None:
    oldest = site.apply_retention()
    assert oldest > 0
    site.write(ONE + LATE)
    said = site.deliver("late")
    assert "PEN-RTE-029" in said
    assert f"offset {oldest} of source 'web'" in said
    assert site.deliver("a") == "", "one that has begun is not concerned"

    append(site, USERS.truncate(), *(USERS.insert(n=n, pad="copied") for n in range(40)))
    begin_with_what_there_is(said)
    assert site.deliver("late") == ""
    assert site.rows("users") == list(range(40))


def test_an_operator_can_begin_with_what_is_there(site: Site) -> None:
    oldest = site.apply_retention()
    site.write(ONE + LATE)
    begin_with_what_there_is(site.deliver("late"))
    assert site.deliver("late") == ""
    assert site.rows("users") == list(range(oldest, 40))


def test_a_mirror_of_a_whole_log_and_a_table_that_is_no_mirror_just_begin(site: Site) -> None:
    site.write(ONE + LATE)
    assert site.deliver("late") == ""
    assert site.rows("users") == list(range(40))
    oldest = site.apply_retention()
    site.write(ONE + LATE + "  plain:\n    from: web\n    to: {type: duckdb, path: ./plain.duckdb, table: events}\n")
    assert site.deliver("plain") == ""
    with open_file(site.folder / "plain.duckdb") as connection:
        assert connection.execute("SELECT min(n) FROM events").fetchall() == [(oldest,)]
