"""``skip`` drops what its condition is true for, and only that."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.steps.skip.config import SkipConfig
from penstock.steps.skip.step import Skip
from penstock.steps.where.config import WhereConfig
from penstock.steps.where.step import Where
from penstock.testing.step import ANY_DATA, StepContract, batch_of, failed, kept


class TestSkip(StepContract):
    name = "skip"
    configs: ClassVar[list[Any]] = ["price > 10", {"condition": "user.name in ('DE') or a is null"}, "false", "true"]


@pytest.mark.parametrize(
    ("condition", "data", "passes"),
    [
        ("price > 10", b'{"price":11}', False),
        ("price > 10", b'{"price":1e1}', True),
        ("price = 10", b'{"price":10}', False),
        ("price = 10", b'{"price":10.0}', False),
        ("price = 10", b'{"price":1e1}', False),
        ("price = 10", b'{"price":"10"}', False),
        ("price > 10", b"{}", True),
        ("price > 10", b'{"price":"dear"}', True),
        ("user.mail like '%@test'", b'{"user":{"mail":"a@test"}}', False),
        ("record.op = 'insert'", b"{}", False),
    ],
)
def test_what_the_condition_is_true_for_goes_and_what_is_null_stays(condition: str, data: bytes, passes: bool) -> None:
    outcome = Skip(SkipConfig.model_validate(condition)).apply(batch_of(data))
    assert (outcome.kept.num_rows, outcome.skipped) == ((1, 0) if passes else (0, 1))


@settings(max_examples=60)
@given(st.lists(ANY_DATA, max_size=8))
def test_skip_and_where_share_the_records_between_them(data: list[bytes | None]) -> None:
    batch = batch_of(*data)
    condition = "a = 1 or price > 0 or user.name is not null"
    dropped = Skip(SkipConfig.model_validate(condition)).apply(batch)
    passed = Where(WhereConfig.model_validate(condition)).apply(batch)
    assert failed(dropped) == failed(passed)
    assert dropped.skipped == len(kept(passed))
    assert passed.skipped == len(kept(dropped))
