"""DuckDB is kept between batches, its file is not: nobody can tell that it was not opened anew."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.destination import DuckdbDestination
from penstock.destinations.duckdb.instance import lend_instance

FROM_ELSEWHERE = "import duckdb, sys; print(*duckdb.connect(sys.argv[1]).execute(sys.argv[2]).fetchall())"


def ask(path: Path, statement: str) -> str:
    """By another process, which DuckDB lets in only while nobody has the file open."""
    command = [sys.executable, "-c", FROM_ELSEWHERE, str(path), statement]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def run(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """What the last statement says; the file is open meanwhile."""
    with lend_instance() as instance:
        connection = instance.attach(path, read_only=False, checkpoint=True)
        for statement in statements:
            connection.execute(statement)
        return connection.fetchall()


@pytest.mark.parametrize(
    "name", ["memory.duckdb", "main.duckdb", "temp.db", "a.b.duckdb", 'it\'s "mine".duckdb', "none"]
)
def test_a_file_is_called_what_duckdb_calls_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    ((called, schema),) = run(path, "SELECT current_database(), current_schema()")
    assert ask(path, "SELECT current_database(), current_schema()") == str((called, schema))


def test_others_can_open_the_file_between_batches_and_see_what_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "lake.duckdb"
    run(path, "CREATE TABLE t AS SELECT 1 AS a", "CREATE VIEW v AS SELECT * FROM lake.main.t")
    assert ask(path, "FROM v") == "(1,)"
    ask(path, "INSERT INTO t VALUES (2)")
    assert run(path, "SELECT count(*) FROM v") == [(2,)]


def test_what_was_not_committed_is_rolled_back(tmp_path: Path) -> None:
    path = tmp_path / "lake.duckdb"
    run(path, "CREATE TABLE t (a INTEGER)", "BEGIN", "INSERT INTO t VALUES (1)")
    assert run(path, "SELECT count(*) FROM t") == [(0,)]
    with pytest.raises(duckdb.ConversionException):
        run(path, "BEGIN", "INSERT INTO t VALUES (1)", "SELECT 'x'::INTEGER")
    assert run(path, "SELECT count(*) FROM t") == [(0,)]


def test_nothing_of_one_file_is_left_for_the_next(tmp_path: Path) -> None:
    run(
        tmp_path / "one.duckdb",
        "CREATE TABLE t (a INTEGER)",
        "CREATE TEMP TABLE u (a INTEGER)",
        "SET TimeZone = 'Asia/Tokyo'",
    )
    found = run(tmp_path / "two.duckdb", "SELECT table_name FROM duckdb_tables()")
    assert found == []
    assert run(tmp_path / "two.duckdb", "SELECT current_setting('TimeZone')") == [("UTC",)]


def test_what_it_spills_lies_beside_its_file_and_is_gone_with_the_batch(tmp_path: Path) -> None:
    path, other = tmp_path / "lake.duckdb", tmp_path / "other.duckdb"
    settings = ("SET memory_limit = '40MB'", "SET preserve_insertion_order = false")
    rows = "CREATE TEMP TABLE t AS SELECT hash(i)::VARCHAR || repeat('x', 40) AS s FROM range(1_000_000) r(i)"
    with lend_instance() as instance:
        connection = instance.attach(path, read_only=False, checkpoint=True)
        for statement in (*settings, rows):
            connection.execute(statement)
        assert (tmp_path / "lake.duckdb.tmp").exists()
    assert not (tmp_path / "lake.duckdb.tmp").exists()
    assert run(other, "SELECT current_setting('temp_directory')") == [(f"{other}.tmp",)]


def test_a_mirror_keeps_its_write_ahead_log_and_the_next_file_does_not(tmp_path: Path) -> None:
    mirror, plain = tmp_path / "mirror.duckdb", tmp_path / "plain.duckdb"
    with lend_instance() as instance:
        instance.attach(mirror, read_only=False, checkpoint=False).execute("CREATE TABLE t (a INTEGER)")
    run(plain, "CREATE TABLE t (a INTEGER)")
    assert (tmp_path / "mirror.duckdb.wal").exists()
    assert not (tmp_path / "plain.duckdb.wal").exists()


def test_two_files_can_be_open_at_once(tmp_path: Path) -> None:
    with lend_instance() as one, lend_instance() as two:
        assert one is not two
        one.attach(tmp_path / "one.duckdb", read_only=False, checkpoint=True)
        two.attach(tmp_path / "two.duckdb", read_only=False, checkpoint=True)
    run(tmp_path / "one.duckdb", "SELECT 1")


def test_a_file_that_cannot_be_opened_does_no_harm_to_the_next(tmp_path: Path) -> None:
    bad = tmp_path / "bad.duckdb"
    bad.write_bytes(b"no database at all" * 1000)
    with pytest.raises(duckdb.Error):
        run(bad, "SELECT 1")
    assert run(tmp_path / "good.duckdb", "SELECT 1") == [(1,)]


def test_a_forked_process_does_not_use_what_its_parent_keeps(tmp_path: Path) -> None:
    script = f"""
import os
from pathlib import Path
from tests.destinations.duckdb.test_duckdb_instance import run
run(Path({str(tmp_path / "parent.duckdb")!r}), "SELECT 1")
child = os.fork()
if child == 0:
    run(Path({str(tmp_path / "child.duckdb")!r}), "CREATE TABLE t AS SELECT range AS a FROM range(500_000)")
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_that_has_used_it_ends_without_a_word(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.duckdb.destination import DuckdbDestination
DuckdbDestination(DuckdbConfig(path=Path({str(tmp_path / "lake.duckdb")!r}))).check()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


def test_check_counts_the_tables_of_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "lake.duckdb"
    run(path, "CREATE TABLE t (a INTEGER)")
    assert ", 1 tables," in DuckdbDestination(DuckdbConfig(path=path)).check()
    assert os.listdir(tmp_path) == ["lake.duckdb"]
