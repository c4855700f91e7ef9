"""Processes that remember shards for all workers: what they remember is right, and they can be lost at any time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.engine.stateful import shard_home
from penstock.engine.stateful.shard_home import keep_homes_in, memory_of
from penstock.engine.stateful.shards import SHARDS, shard_numbers
from tests.engine.stateful.in_process import HoldingRoute, record

GATHER = {"gather": {"key": ["k"], "until": "done", "at_most": "10m"}}


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[list[int]]:
    """The processes, of which none outlives the test."""
    # A path that is longer than that of a socket may be.
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    keep_homes_in(str(folder))
    yield shard_home._homes
    keep_homes_in(None)
    end(shard_home._homes)


def end(homes: list[int]) -> None:
    while homes:
        pid = homes.pop()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def remembered(route: HoldingRoute) -> int:
    """How many shards somebody remembers."""
    found = 0
    for shard in shard_numbers():
        with memory_of(route.plan, shard) as memory:
            found += memory.extent is not None
    return found


def test_every_shard_has_one_process_which_is_asked_again(tmp_path: Path, homes: list[int]) -> None:
    route = HoldingRoute(tmp_path, [GATHER])
    for number in range(3):
        ran = route.run(route.append("web", *(record(number, k=key, done=number == 2) for key in range(20))))
        assert len(homes) == SHARDS
    assert len(ran.rows) == 60
    assert ran.report.waiting_in_all == 0
    assert remembered(route) == SHARDS


def lose_all(route: HoldingRoute, homes: list[int]) -> None:
    end(homes)


def lose_one(route: HoldingRoute, homes: list[int]) -> None:
    end(homes[:1])
    homes.pop(0)


def fail_before_it_is_stored(route: HoldingRoute, homes: list[int]) -> None:
    stored = route.store.copy()
    route.run(route.append("web", record(99, k=1, done=True)))
    route.store = stored


@pytest.mark.parametrize("happens", [lose_all, lose_one, fail_before_it_is_stored])
def test_what_is_remembered_wrongly_or_lost_is_built_again(
    tmp_path: Path, homes: list[int], happens: Callable[[HoldingRoute, list[int]], None]
) -> None:
    route = HoldingRoute(tmp_path, [GATHER])
    route.run(route.append("web", *(record(key, k=key) for key in range(20))))
    happens(route, homes)
    ran = route.run(route.append("web", *(record(100 + key, k=key, done=True) for key in range(20))))
    assert sorted(row["n"] for row in ran.rows) == [*range(20), *range(100, 120)]
    assert ran.report.waiting_in_all == 0


def test_two_routes_share_nothing(tmp_path: Path, homes: list[int]) -> None:
    first, second = (HoldingRoute(tmp_path / name, [GATHER]) for name in ("first", "second"))
    first.run(first.append("web", record(1, k=1)))
    ran = second.run(second.append("web", record(2, k=1, done=True)))
    assert [row["n"] for row in ran.rows] == [2]


def test_what_goes_wrong_there_is_told_here(tmp_path: Path, homes: list[int]) -> None:
    route = HoldingRoute(tmp_path, [GATHER])
    route.run(route.append("web", *(record(key, k=key) for key in range(20))))
    end(homes)
    for blobs in route.store.states.values():
        blobs.update({(number,): (b"damaged", token) for (number,), (_, token) in blobs.items() if number >= 0})
    with pytest.raises(RuntimeError, match=r"(?s)remembers this shard says:.*Traceback.*error"):
        route.run(route.append("web", *(record(key, k=key) for key in range(20))))


def test_the_oldest_processes_go_when_there_are_too_many(
    tmp_path: Path, homes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_home, "MOST_HOMES", 2)
    route = HoldingRoute(tmp_path, [GATHER])
    route.run(route.append("web", *(record(key, k=key) for key in range(20))))
    assert len(homes) == 2
    ran = route.run(route.append("web", *(record(20 + key, k=key, done=True) for key in range(20))))
    assert len(ran.rows) == 40
