"""``penstock sample backtest``: what other policies would have kept, without changing anything."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.sample_verbs.backtest_page import MOST_BARS, backtest_page
from penstock.cli.sample_verbs.backtest_tables import report_object
from penstock.engine.backtest.backtest_report import BacktestReport, agreement, all_traces, set_counts
from penstock.engine.backtest.policy_file import load_policies
from penstock.engine.backtest.policy_sets import ComparedSets
from penstock.engine.processes.engine_lock import EngineLock
from tests.cli.projects import Project, Result
from tests.engine.backtest.recorded import CANDIDATE, LIVE, made_up, write_project
from tests.engine.backtest.test_verdicts import in_process
from tests.support.command import run_penstock

FUTURE = "2999-01-01"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write_project(tmp_path, made_up(1)).ledger.close()
    (tmp_path / "policies.yaml").write_text(yaml.safe_dump(CANDIDATE))
    return Project(tmp_path)


def backtest(project: Project, *words: str) -> Result:
    return project.penstock("sample", "backtest", str(project.folder / "policies.yaml"), *words)


def expected_report(project: Project) -> BacktestReport:
    """What the verb must find, computed without Spark."""
    pipeline = project.open()
    sets = ComparedSets.of(pipeline.plan("sampled"), load_policies(project.folder / "policies.yaml"))
    tally = in_process(pipeline, sets)
    records = sum(usage.records for usage in pipeline.log.usage().values())
    pipeline.ledger.close()
    return BacktestReport(
        "sampled", None, None, records, 0.25, all_traces(tally), agreement(tally), set_counts(tally, sets)
    )


def files(folder: Path) -> dict[str, int]:
    """Every file with the time it was last written. SQLite's own notes come and go with every reader."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("ledger.db-"))
    return {str(path): path.stat().st_mtime_ns for path in found}


def test_spark_finds_the_same_as_plain_python_beside_a_running_engine(project: Project) -> None:
    expected = report_object(expected_report(project))
    page = project.folder / "page.html"
    lock = EngineLock(project.folder / "data" / "run")
    lock.acquire()
    try:
        before = files(project.folder)
        ran = run_penstock(["sample", "backtest", "policies.yaml", "--json", "--html", "page.html"], project.folder)
        assert (ran.returncode, ran.stderr) == (0, "")
        found = json.loads(ran.stdout)
        assert _without_sums_of_floats(found) == _without_sums_of_floats(expected)
        assert found["sets"]["live"]["kept"]["spans"] > 0
        written = files(project.folder)
        assert str(page) in written
        assert {path: time for path, time in written.items() if path != str(page)} == before
    finally:
        lock.release()


def _without_sums_of_floats(found: Any) -> Any:
    """Tasks add up in any order."""
    if isinstance(found, dict):
        return {key: _without_sums_of_floats(each) for key, each in found.items() if key != "estimated_traces"}
    return [_without_sums_of_floats(each) for each in found] if isinstance(found, list) else found


def test_a_range_without_records_needs_no_spark(project: Project) -> None:
    found = json.loads(backtest(project, "--from", FUTURE, "--json").out)
    assert (found["from"], found["to"], found["records"]) == ("2999-01-01T00:00:00.000Z", None, 0)
    nothing = {"traces": 0, "spans": 0, "bytes": 0}
    assert found["traces"] == {
        "all": 0, "kept_by_both": 0, "kept_only_by_live": 0, "kept_only_by_candidate": 0, "kept_by_neither": 0,
    }  # fmt: skip
    assert found["sets"]["live"] == {
        "kept": nothing, "dropped": nothing, "waiting": nothing, "estimated_traces": 0, "services": [],
        "policies": [
            {"policy": policy["name"], "kept": nothing, "dropped": nothing, "estimated_traces": 0}
            for policy in LIVE["policies"]
        ],
    }  # fmt: skip
    assert [each["policy"] for each in found["sets"]["candidate"]["policies"]] == ["slow", "no-marked", "roots", "base"]


def test_tables_compare_both_sets(project: Project) -> None:
    ran = backtest(project, "--from", FUTURE)
    assert ran.code == 0
    lines = ran.out.splitlines()
    first = "route sampled, from 2999-01-01T00:00:00.000Z to the newest: 0 records, in batches of 0.25 s"
    last = "of 0 traces both sets keep 0, only live 0, only candidate 0, neither 0"
    assert (lines[0], lines[-1]) == (first, last)
    assert any(re.fullmatch(r"marked +kept +0 +- += +0 +- += *", line) for line in lines)
    assert any(re.fullmatch(r"base +kept +0 +0 += +0 +0 += *", line) for line in lines)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--route", "none"], 2, "PEN-ENG-005: there is no route 'none'."),
        (["--route", "copy"], 1, "PEN-ENG-082: there is no live set of policies to compare with: route 'copy' does"),
        ([], 1, "PEN-ENG-082: several routes have a step 'sample'.\n  Choose one with --route: other, sampled."),
        (["--from", "yesterday"], 2, "'yesterday' is neither a duration"),
        (["--from", "1h", "--to", "2h"], 2, "it is not after --from."),
        (["--every", "0s"], 2, "a batch lasts longer than nothing."),
        (["--every", "often"], 2, "a duration such as 250ms"),
    ],
)
def test_what_cannot_be_done_is_said(project: Project, words: list[str], code: int, says: str) -> None:
    config = yaml.safe_load(project.config.read_text())
    config["routes"]["other"] = config["routes"]["sampled"]
    config["routes"]["copy"] = {"from": "spans", "to": {"type": "null"}}
    project.config.write_text(yaml.safe_dump(config))
    ran = backtest(project, *words)
    assert ran.code == code
    assert " ".join(says.split()) in re.sub(r"[\s│]+", " ", ran.err)


def test_a_pipeline_without_a_sampler_has_nothing_to_compare_with(project: Project) -> None:
    config = yaml.safe_load(project.config.read_text())
    del config["routes"]["sampled"]["steps"]
    project.config.write_text(yaml.safe_dump(config))
    ran = backtest(project)
    assert (ran.code, ran.err.splitlines()[-2:]) == (
        1,
        [
            "PEN-ENG-082: there is no live set of policies to compare with: no route has a step 'sample'.",
            "  Add the step to the route of the spans.",
        ],
    )


def test_wrong_policies_are_named_with_their_line(project: Project) -> None:
    path = project.folder / "policies.yaml"
    path.write_text("policies:\n  - {name: slow, type: latency, treshold_ms: 5}\n")
    ran = backtest(project)
    assert ran.code == 78
    assert f"{path}:2:33: policies[0].treshold_ms: unknown key 'treshold_ms'. Did you mean 'threshold_ms'?" in ran.err


def test_a_pipeline_that_never_ran_has_no_log(tmp_path: Path, project: Project) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "pipeline.yaml").write_text(project.config.read_text())
    (fresh / "policies.yaml").write_text(yaml.safe_dump(CANDIDATE))
    ran = backtest(Project(fresh))
    assert ran.code == 1
    assert "PEN-ENG-004" in ran.err


class _Page(HTMLParser):
    """The text of a page, what its elements refer to, and which were opened and not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.references, self.open, self.bars = "", list[str](), list[str](), 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attrs if name in ("src", "href")]
        self.bars += tag == "rect"
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_stands_alone_and_shows_both_sets(project: Project) -> None:
    report = expected_report(project)
    text = backtest_page(report)
    page = _Page(text)
    assert (page.references, page.open) == ([], [])
    assert not re.search(r"https?://|@import|url\(|<script", text)
    assert all(each in page.text for each in ("größe", "(no name)", "no-marked", "Kept share of spans by service"))
    assert "nan" not in text


def test_names_of_strangers_are_text(project: Project) -> None:
    report = expected_report(project)
    hostile = "<script>alert(1)</script>"
    sets = {name: replace(each, services={hostile: each.services["shop"]}) for name, each in report.sets.items()}
    text = backtest_page(replace(report, sets=sets))
    assert hostile not in text
    assert hostile in _Page(text).text


def test_a_chart_has_no_more_bars_than_one_can_look_over(project: Project) -> None:
    report = expected_report(project)
    sets = {
        name: replace(each, services={f"service {n}": each.services["shop"] for n in range(MOST_BARS + 3)})
        for name, each in report.sets.items()
    }
    page = _Page(backtest_page(replace(report, sets=sets)))
    assert "Without 3 services that have fewer spans" in page.text
    assert f"service {MOST_BARS + 2}" in page.text


def test_a_page_of_nothing(project: Project) -> None:
    page = project.folder / "page.html"
    assert backtest(project, "--from", FUTURE, "--html", str(page)).code == 0
    assert _Page(page.read_text()).open == []
