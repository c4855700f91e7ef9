"""COPY comes over in blocks of whole rows, by the driver and past it, whatever the rows are like."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import psycopg
import pytest

from penstock.errors import PenstockError
from penstock.record import Header, Mode
from penstock.sources.postgres.config import PostgresConfig
from penstock.sources.postgres.connection import Connection, connect
from penstock.sources.postgres.copy import copy_blocks as reading
from penstock.sources.postgres.copy import page_range
from penstock.sources.postgres.copy.copy_blocks import Stopped, read_blocks
from penstock.sources.postgres.rows import row_entries
from penstock.sources.postgres.rows.scratch import Scratch
from tests.sources.postgres.rig import Rig
from tests.support.postgres import LOGICAL, Server

ROWS = "SELECT i, repeat(chr(97 + i % 26), (i * 7919) % 700) FROM generate_series(1, 20000) i"
WAYS = pytest.mark.parametrize("large", [True, False], ids=["past the driver", "by the driver"])


@pytest.fixture
def connection(logical_url: str) -> Iterator[Connection]:
    with closing(connect(PostgresConfig.model_validate({"url": logical_url, "tables": "a.b"}))) as made:
        yield made


def copied(connection: Connection, query: str, large: bool) -> tuple[list[int], str]:
    """The rows of each block, and the checksum of all text."""
    digest, rows = hashlib.sha256(), []
    for block in read_blocks(connection, f"COPY ({query}) TO STDOUT".encode(), Scratch(), Event(), large):
        text = block.text[: block.size].tobytes()
        assert text.count(b"\n") == block.rows
        assert text.endswith(b"\n")
        digest.update(text)
        rows.append(block.rows)
    return rows, digest.hexdigest()


@WAYS
def test_blocks_hold_whole_rows_and_nothing_is_lost_between_them(connection: Connection, large: bool) -> None:
    rows, checksum = copied(connection, ROWS, large)
    assert len(rows) > 2
    assert sum(rows) == 20_000
    expected = "".join(f"{i}\t{chr(97 + i % 26) * ((i * 7919) % 700)}\n" for i in range(1, 20_001))
    assert checksum == hashlib.sha256(expected.encode()).hexdigest()


@WAYS
def test_a_row_larger_than_a_block_comes_by_itself(connection: Connection, large: bool) -> None:
    query = "SELECT repeat('x', CASE i WHEN 3 THEN 9000000 ELSE 10 END) FROM generate_series(1, 5) i"
    rows, checksum = copied(connection, query, large)
    assert rows == [2, 1, 2]
    expected = "".join("x" * (9_000_000 if i == 3 else 10) + "\n" for i in range(1, 6))
    assert checksum == hashlib.sha256(expected.encode()).hexdigest()


@WAYS
def test_nothing_is_nothing(connection: Connection, large: bool) -> None:
    assert copied(connection, "SELECT 1 WHERE false", large)[0] == []


@WAYS
def test_an_error_in_the_middle_is_the_servers_own(connection: Connection, large: bool) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero, match="division by zero"):
        copied(connection, "SELECT 1 / (15000 - i) FROM generate_series(1, 20000) i", large)


@WAYS
def test_a_connection_that_breaks_in_the_middle_is_no_end(
    connection: Connection, logical_url: str, large: bool
) -> None:
    query = "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 1000000)) TO STDOUT"
    found = read_blocks(connection, query.encode(), Scratch(), Event(), large)
    next(found)
    with psycopg.connect(logical_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    with pytest.raises((PenstockError, psycopg.Error)) as caught:
        for _ in found:
            pass
    assert "terminat" in str(caught.value) or "closed" in str(caught.value) or "broke" in str(caught.value)


@WAYS
def test_a_stop_is_heard_while_nothing_comes(connection: Connection, large: bool) -> None:
    stopping = Event()
    stopping.set()
    with pytest.raises(Stopped):
        list(read_blocks(connection, b"COPY (SELECT pg_sleep(600)) TO STDOUT", Scratch(), stopping, large))


def test_a_row_too_large_for_the_log_is_named_and_the_others_are_copied(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (row_entries, page_range):
        monkeypatch.setattr(module, "LARGEST_ROW", 3 * 2**20)
    monkeypatch.setattr(row_entries, "FRAME_BYTES", 2**20)
    monkeypatch.setattr(reading, "BLOCK_BYTES", 2**18)
    rig.ask(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT i, repeat('x', CASE i WHEN 2 THEN 4000000 ELSE i END) FROM generate_series(1, 3) i",
        "INSERT INTO t VALUES (4, repeat('\"', 2000000))",  # too large only as JSON
    )
    found = [record for record in rig.catch_up() if record.mode is Mode.COPY]
    assert {record.key: Header.MALFORMED in record.headers for record in found} == {
        '{"id":1}': False, '{"id":2}': True, '{"id":3}': False, '{"id":4}': True,
    }  # fmt: skip
    assert {record.data for record in found if Header.MALFORMED in record.headers} == {b'{"id":2}', b'{"id":4}'}


def test_an_encrypted_connection_does_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_range, "RANGE_PAGES", 8)  # several threads, and ranges that count as large
    server = Server()
    server.start(settings={**LOGICAL, **server.with_tls()})
    try:
        rig = Rig(f"{server.url}?sslmode=require", tmp_path)
        rig.ask(
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "INSERT INTO t SELECT i, repeat('x', i % 300) FROM generate_series(1, 5000) i",
        )
        rig.catch_up()
        rig.ask("UPDATE t SET v = 'changed' WHERE id % 10 = 0", "DELETE FROM t WHERE id % 11 = 0")
        rig.catch_up()
        assert rig.is_mirrored("public.t")
    finally:
        server.kill()
        server.remove()
