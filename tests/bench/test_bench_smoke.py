"""The benchmarks that need neither Spark nor a server run, and their figures can be pasted into a page."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from bench.__main__ import BENCHMARKS, main
from bench.measure import Comparison, Contender, Figure, Goal, Role, by_turns, markdown

ROOT = Path(__file__).parents[2]


def test_a_quick_run_prints_a_table_with_a_figure_for_every_contender(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log_append", "--quick", "--folder", str(tmp_path)]) == 0
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("| log_append")]
    assert len(rows) == 3
    for name, unit, us, peer, limit, share, goal, met in rows:
        assert unit.strip() == "records/s"
        assert all(_leading_number(cell) > 0 for cell in (us, peer, limit))
        assert share.strip().endswith("%")
        judged = "from Python" not in name
        assert bool(goal.strip()) is judged
        assert met.strip() in (("yes", "**no**") if judged else ("",))
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_benchmark_is_an_error_that_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["log_apend"])
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert "'log_apend'" in message
    assert all(name in message for name in BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_can_be_imported_and_is_documented(name: str) -> None:
    assert f"`{name}`" in (ROOT / "bench" / "README.md").read_text()
    assert callable(import_module(f"bench.{name}").run)


def test_contenders_take_turns_and_warm_up_does_not_count() -> None:
    order: list[str] = []

    def contender(name: str, role: Role) -> Contender:
        def measure() -> float:
            order.append(name)
            return float(len(order))

        return Contender(role, name, measure)

    figures = by_turns([contender("us", Role.US), contender("limit", Role.LIMIT)], rounds=2, warm_up=1)
    assert order == ["us", "limit", "us", "limit", "limit", "us"]
    assert [figure.rounds for figure in figures] == [(3.0, 6.0), (4.0, 5.0)]


def test_the_table_says_share_of_the_limit_and_whether_the_goal_was_met() -> None:
    figures = (Figure(Role.US, "we", (40.0, 50.0, 60.0)), Figure(Role.LIMIT, "bare", (200.0,)))
    table = markdown([Comparison("thing", "x/s", figures, Goal(">= 50%", False), ("a note",))])
    assert "| thing | x/s | 50.0 ±20% |  | 200 | 25% | >= 50% | **no** |" in table
    assert "- `thing`: limit = bare" in table
    assert "- `thing`: a note" in table


def _leading_number(cell: str) -> float:
    return float(cell.split()[0].replace(",", ""))
