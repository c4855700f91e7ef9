"""The promise of kept state, under ``kill -9`` and while the database is away: the newest of everything, each once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.chaos.hazards import Kill
from tests.chaos.running import ENGINE
from tests.chaos.state.outage import outage
from tests.chaos.state.run import chaos, running_server
from tests.chaos.state.witness import Witness
from tests.support.postgres import Server


@pytest.fixture
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.mark.timeout(1200)  # the engine starts three times, on whatever machine this is
def test_state_is_the_newest_and_each_version_is_written_once_whatever_is_killed(
    tmp_path: Path, server: Server
) -> None:
    points = ("destination.committed@60",)
    result = chaos(tmp_path, server, [Kill(ENGINE)], 1, seed=20264, settle_every=1, points=points, sources=8, rate=60)
    assert result.wrong == []
    assert (result.struck.total(), result.exit_code) == (2, 0)
    assert 50 < result.writes < result.logged


@pytest.mark.timeout(1200)
def test_after_an_outage_each_kind_of_a_source_is_written_once(tmp_path: Path, server: Server) -> None:
    seen = outage(tmp_path, server, seconds=4, rate=100, sources=8, seed=20264)
    assert seen.reckoning.wrong == []
    assert set(seen.writes.values()) == {1}
    assert seen.posted > 2 * len(seen.writes)


RIGHT = """
INSERT INTO compliance VALUES ('hub1', 'one', 'v0.3', 'v0.7');
INSERT INTO penstock_versions (source, kind, incarnation, generation) VALUES
    ('hub1', 'policies', 0, 3), ('hub1', 'compliance', 0, 7), ('hub1', 'changes', 0, 1);
"""


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ("", []),
        ("UPDATE penstock_versions SET generation = 4 WHERE kind = 'policies'", []),
        ("UPDATE penstock_versions SET generation = 4, incarnation = 1 WHERE kind = 'policies'", []),
        (
            "UPDATE penstock_versions SET generation = 3 WHERE kind = 'policies'",
            ["policies 0.3 of hub1 was written twice"],
        ),
        (
            "UPDATE penstock_versions SET generation = 2 WHERE kind = 'policies'",
            ["policies 0.2 of hub1 was written after 0.3"],
        ),
        (
            "UPDATE compliance SET v = 'one'",
            ["1 rows of hub1 in compliance were written though nothing changed"],
        ),
        (
            "UPDATE compliance SET needs = 'v0.4', base = 'v0.8';"
            "UPDATE penstock_versions SET generation = 8 WHERE kind = 'compliance'",
            ["a dependency was violated: compliance 0.8 of hub1: a row has needs v0.4, base v0.8; there are policies"
             " v0.3, compliance v0.8"],
        ),
        (
            "UPDATE compliance SET base = 'v0.8'; UPDATE penstock_versions SET generation = 2 WHERE kind = 'changes'",
            ["a dependency was violated: changes 0.2 of hub1: a row has needs v0.3, base v0.8; there are policies v0.3,"
             " compliance v0.7"],
        ),
    ],
)  # fmt: skip
def test_a_write_that_must_not_be_is_seen(witnessed: Witness, written: str, wrong: list[str]) -> None:
    for transaction in (RIGHT, written):
        with psycopg.connect(witnessed.url) as connection:
            connection.execute(transaction.encode())
    assert list(witnessed.wrong()) == wrong


@pytest.fixture(scope="module")
def witness_server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def witnessed(witness_server: Server) -> Iterator[Witness]:
    """A database of its own, with a table of compliance."""
    base, _, _ = witness_server.url.rpartition("/")
    with psycopg.connect(witness_server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE witnessed")
        witness = Witness(f"{base}/witnessed")
        witness.install()
        with psycopg.connect(witness.url) as other:
            other.execute("CREATE TABLE compliance (source text, v text, needs text, base text)")
        yield witness
        connection.execute("DROP DATABASE witnessed WITH (FORCE)")
