"""``opfilter`` goes by the op alone."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from penstock.record import Op, Record, entries, placed
from penstock.steps.opfilter.config import OpfilterConfig, OpName
from penstock.steps.opfilter.step import Opfilter
from penstock.testing.step import StepContract


class TestOpFilter(StepContract):
    name = "opfilter"
    reads_data = False
    configs: ClassVar[list[Any]] = [["insert", "update"], {"deny": ["insert"]}, {"allow": ["delete"]}]


@pytest.mark.parametrize(
    ("config", "passing"),
    [
        (["insert"], ["insert"]),
        (["update", "insert"], ["insert", "update"]),
        ({"deny": ["delete", "noop"]}, ["insert", "update", "command"]),
        ({"allow": ["insert", "update"], "deny": ["delete"]}, ["insert", "update"]),
    ],
)
def test_only_these_ops_pass_and_the_others_are_counted(config: Any, passing: list[str]) -> None:
    batch = placed(entries([Record(None, op=op) for op in Op]), 0, 0)
    outcome = Opfilter(OpfilterConfig.model_validate(config)).apply(batch)
    assert outcome.kept.column("op").to_pylist() == passing
    assert outcome.skipped == len(Op) - len(passing)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "name the ops"),
        ([], "at least 1"),
        (["upsert"], "'insert', 'update', 'delete'"),
        ({"allow": ["insert"], "deny": ["insert"]}, "'insert' is both allowed and denied"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(config: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        OpfilterConfig.model_validate(config)


def test_every_op_of_a_record_can_be_named() -> None:
    assert [str(op) for op in OpName] == [str(op) for op in Op]
