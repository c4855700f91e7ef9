"""``pretty`` shows a few records and changes nothing."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from penstock.steps.pretty.config import PrettyConfig
from penstock.steps.pretty.step import Pretty
from penstock.testing.step import StepContract, batch_of


class TestPretty(StepContract):
    name = "pretty"
    reads_data = False
    changes = None
    configs: ClassVar[list[Any]] = [{}, 1000, {"per_second": 0.5, "max_bytes": 10}]


def shown(capsys: pytest.CaptureFixture[str], data: bytes | None, **options: Any) -> str:
    Pretty(PrettyConfig.model_validate(options)).apply(batch_of(data))
    head, _, body = capsys.readouterr().err.partition("\n")
    assert head.startswith("3:100 ")
    assert head.endswith(" insert 'shop'")
    return body.removesuffix("\n")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a":1.50,"b":{"c":[true,null,{}]}}',
         '{\n  "a": 1.50,\n  "b": {\n    "c": [\n      true,\n      null,\n      {}\n    ]\n  }\n}'),
        (b'{"n":12345678901234567890.10}', '{\n  "n": 12345678901234567890.10\n}'),
        (b"not json", "not json"),
        (b"\x1b[2J\xff", r"\x1b[2J\\xff"),
        (b'"\\u001b\xc2\x9b"', '"\\u001b\\u009b"'),
        (b"[" * 100_000, "[" * 2000 + " ... (100000 bytes)"),
        (None, "(no data)"),
    ],
)  # fmt: skip
def test_data_is_shown_as_a_person_reads_it(
    capsys: pytest.CaptureFixture[str], data: bytes | None, expected: str
) -> None:
    assert shown(capsys, data) == expected


def test_long_data_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, b'{"a":"xxxxxxxx"}', max_bytes=6) == '{"a":" ... (16 bytes)'


def test_deep_data_does_not_stop_it(capsys: pytest.CaptureFixture[str]) -> None:
    deep = b"[" * 900 + b"]" * 900
    assert shown(capsys, deep) != ""


def test_no_more_are_shown_than_a_second_may_have(capsys: pytest.CaptureFixture[str]) -> None:
    few, some = (Pretty(PrettyConfig.model_validate(rate)) for rate in (0.001, 3))
    for step, expected in ((few, 1), (some, 3)):
        for _ in range(2):
            assert step.apply(batch_of(*[b"{}"] * 10)).kept.num_rows == 10
        assert capsys.readouterr().err.count("insert 'shop'") == expected
