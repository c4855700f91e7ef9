"""The promise of mirrors, under ``kill -9`` and restarts of both servers: they end equal to their source."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.mirror.comparing import Content, Row, difference
from tests.chaos.mirror.run import chaos
from tests.chaos.mirror.stage import ROLES
from tests.chaos.running import SUPERVISOR

HIT = tuple(role for role in ROLES if role != SUPERVISOR)  # whose death is everybody's: the long form has it


@pytest.mark.timeout(1200)  # the engine starts three times, on whatever machine this is
def test_mirrors_are_equal_to_their_source_whatever_is_killed(tmp_path: Path) -> None:
    result = chaos(tmp_path, seconds=20, seed=20262, rate=80, roles=HIT, pause=8)
    assert result.faults() == []
    assert set(result.kills) == set(HIT)
    assert result.transactions > 100
    assert result.records > sum(result.rows.values())


@pytest.mark.parametrize(
    ("mirror", "missing", "surplus"),
    [
        ([("1", "a"), ("2", None), ("2", None)], 0, 0),
        ([("1", "a"), ("2", None)], 1, 0),
        ([("1", "a"), ("2", None), ("2", None), ("2", None)], 0, 1),
        ([("1", "b"), ("2", None), ("2", None)], 1, 1),
        ([("1", "a"), ("2", ""), ("2", None)], 1, 1),
        ([], 3, 0),
    ],
)
def test_the_comparison_sees_every_kind_of_difference(mirror: list[Row], missing: int, surplus: int) -> None:
    columns = {"id": "integer", "word": "text"}
    source = Content(columns, Counter([("1", "a"), ("2", None), ("2", None)]))
    found = difference("words", "DuckDB", source, Content(columns, Counter(mirror)))
    assert (found.missing.total(), found.surplus.total()) == (missing, surplus) if found else missing == surplus == 0


def test_the_comparison_sees_a_column_that_is_not_there() -> None:
    rows = Counter[Row]([("1",)])
    assert difference("words", "DuckDB", Content({"id": "integer"}, rows), Content({"word": "text"}, rows)) is not None
