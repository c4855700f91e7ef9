"""Whatever becomes of a pipeline's text, the answer is a pipeline or a list of problems, never a crash."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.loading import load
from penstock.config.problems import ConfigError, Problem

from .test_loading import SHOP

TOKENS = sorted(
    {
        *SHOP.replace(":", " : ").split(),
        "[]",
        "{}",
        "null",
        "5",
        "true",
        "- ",
        "\n  ",
        "\t",
        "*a",
        "&a",
        "${X}",
        "${",
        '"',
    }
)
WORDS = SHOP.replace("\n", " \n ").replace(", ", " , ").split(" ")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(WORDS) - 1), st.sampled_from(["", *TOKENS])), min_size=1, max_size=4))
def test_a_damaged_pipeline_is_read_or_refused_in_words(damage: list[tuple[int, str]]) -> None:
    words = list(WORDS)
    for place, token in damage:
        words[place] = token
    with TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.yaml"
        path.write_text(" ".join(words))
        lines = len(path.read_text().splitlines())
        for problem in problems_of(path):
            assert problem.what
            assert problem.position is not None
            assert 1 <= problem.position.line <= lines + 1


def problems_of(path: Path) -> Sequence[Problem]:
    try:
        load(path, {})
    except ConfigError as error:
        return error.problems
    return ()
