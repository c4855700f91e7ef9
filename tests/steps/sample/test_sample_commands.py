"""What a sampler is told while it runs: percentages that somebody else sets, and that its route is far behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from penstock.config.component import ReadingContext
from penstock.record import Op, Record, entries, placed
from penstock.steps.sample import remote_rates
from penstock.steps.sample.config import SampleConfig
from penstock.steps.sample.step import Sample
from tests.steps.sample.test_sample import ERRORS, items_of, records, request, sampler, step
from tests.support.otlp_requests import span


def told(sample: Sample, behind: int = 0) -> list[tuple[str, str]]:
    return list(sample.new_commands(lambda: behind))


def decide(sample: Sample, state: Any, commands: list[tuple[str, str]], traces: range) -> int:
    """How many of these traces are sampled after the commands, given as the engine gives them."""
    rows = [
        sample.commands(placed(entries([Record(data.encode(), name, Op.COMMAND)]), 9, 0)) for name, data in commands
    ]
    batch = records(request(*(span(n + 1, trace_id=bytes([n]) * 16) for n in traces)))
    items = items_of(sample, batch)
    empty = np.empty(0, sample.item_type)
    return int(state.decide(items, (), (), np.concatenate([empty, *rows])).passed)


def remote(path: Path) -> Sample:
    policy = {"name": "remote", "type": "remote_probabilistic", "rate_from": path.name, "default_rate": 0}
    raw = {"policies": [ERRORS, policy]}
    return Sample(SampleConfig.model_validate(raw, context=ReadingContext(path.parent)))


def test_a_rate_is_read_from_a_file_and_told_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_rates, "READ_EVERY", 0.0)
    sample = remote(tmp_path / "rate")
    state = sampler(sample)
    with pytest.raises(ValueError, match="the rate of policy 'remote' cannot be read from"):
        told(sample)
    assert decide(sample, state, [], range(1, 40)) == 0
    (tmp_path / "rate").write_text("100\n")
    commands = told(sample)
    assert decide(sample, state, commands, range(40, 80)) == 40
    assert told(sample) == []
    assert decide(sample, state, [], range(80, 120)) == 40
    (tmp_path / "rate").write_text("0.0")
    assert decide(sample, state, told(sample), range(120, 160)) == 0


@pytest.mark.parametrize("text", ["", "many", "nan", "inf", "1" * 5000])
def test_what_is_no_rate_is_not_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "rate").write_text(text)
    with pytest.raises(ValueError, match="policy 'remote'"):
        told(remote(tmp_path / "rate"))


def test_a_rate_comes_from_a_file_by_http_or_from_the_ledger() -> None:
    policy = {"name": "remote", "type": "remote_probabilistic", "rate_from": "ftp://x/y", "default_rate": 0}
    with pytest.raises(ValidationError, match="a file, an http URL or the `ledger`"):
        SampleConfig.model_validate({"policies": [policy]})


def test_far_behind_a_share_of_traces_is_sampled_by_their_ids() -> None:
    sample = step(ERRORS, stress_relief={"above": 100, "below": 10, "sampling_percentage": 100})
    state = sampler(sample)
    assert decide(sample, state, told(sample, 100), range(1, 20)) == 0
    assert decide(sample, state, told(sample, 101), range(20, 40)) == 20
    assert told(sample, 11) == []
    assert decide(sample, state, told(sample, 10), range(40, 60)) == 0


def test_without_relief_in_the_config_policies_are_asked_again() -> None:
    stressed = step(ERRORS, stress_relief={"above": 1, "sampling_percentage": 100})
    state = sampler(stressed)
    assert decide(stressed, state, told(stressed, 2), range(1, 20)) == 19
    calm = step(ERRORS)
    again = sampler(calm)
    for blob in state.snapshot():
        again.apply(blob)
    assert told(calm, 1000) == []
    assert decide(calm, again, [], range(20, 40)) == 0


def test_a_command_of_another_version_means_nothing() -> None:
    sample = step()
    for name, data in (("tomorrow", "{}"), ("rate", '{"policy": "gone", "percentage": 5}')):
        assert len(sample.commands(placed(entries([Record(data.encode(), name, Op.COMMAND)]), 9, 0))) == 0
