"""``penstock test``: a case passes or says, line by line, what is not as expected."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.projects import CONFIG, Project, penstock


def run(folder: Path, text: str, *words: str) -> tuple[int, str, str]:
    path = folder / "cases.yaml"
    path.write_text(text)
    ran = penstock("test", str(path), *words, "--config", str(folder / "pipeline.yaml"))
    return ran.code, ran.out, ran.err


def case(**parts: Any) -> str:
    """A file with one case; JSON is YAML too."""
    return json.dumps({"cases": [{"name": "it", **parts}]})


PASSING: list[dict[str, Any]] = [
    {"steps": [{"where": "price > 10"}], "input": [{"price": 5}, {"price": 15}], "output": [{"price": 15}]},
    {"steps": [{"where": "price > 10"}], "input": [{"price": 5}, {"price": 15}], "skipped": {"where": 1}},
    {"steps": [{"where": "a"}, {"where": "b"}], "input": [{"a": True}], "skipped": {"where#2": 1, "where": 0}},
    {"steps": [{"set": {"total": "price * 2"}}], "input": ['{"price":12.50}'],
     "output": [{"total": 25, "price": 12.5}]},
    {"steps": [{"omit": ["a"]}], "input": ['{"a":1,"b":2.50}'], "output": ['{"b":2.50}']},
    {"steps": [], "input": [{"a": 1}], "output": [{"a": 1.0}]},
    {"steps": [{"omit": ["a"]}], "input": ["{", {}], "output": [{}],
     "failed": [{"input": 1, "step": "omit", "code": "not_json"}]},
    {"steps": [{"omit": ["a"]}], "input": ["{"], "failed": [{"message": "JSON"}]},
    {"steps": [{"opfilter": ["delete"]}], "input_records": [{"op": "delete", "key": "7"}, {"data": {}}],
     "output_records": [{"op": "delete", "key": "7", "data": None}]},
    {"steps": [{"remap": {"a": "b"}}], "input_records": [{"namespace": "a", "data": {"x": 1}}],
     "output_records": [{"namespace": "b"}]},
    {"steps": [{"opfilter": ["insert"]}], "input": ["no json"], "output": ["no json"]},
    {"steps": [{"where": "record.headers.token = 'x' and record.timestamp < '2026-01-02'"}],
     "input_records": [{"data": {}, "headers": {"token": "x"}}], "output": [{}]},
    {"route": "warehouse", "input": [{"price": 11, "x": 1}, {"price": 1}],
     "output": [{"price": 11}], "skipped": {"where": 1}},
    {"route": "warehouse", "input": ["[]"], "output": [], "failed": [{"step": "where", "code": "not_json"}]},
    {"route": "audit", "input": ["[]"], "output_records": [{"data": "[]", "namespace": "web"}]},
]  # fmt: skip


@pytest.mark.parametrize("parts", PASSING)
def test_what_becomes_of_records_as_expected_passes(fresh: Project, parts: dict[str, Any]) -> None:
    code, out, err = run(fresh.folder, case(**parts))
    assert (code, out.splitlines()[-1], err) == (0, "1 case, all passed", ""), out


FAILING: list[tuple[dict[str, Any], list[str]]] = [
    ({"steps": [{"where": "price > 10"}], "input": [{"price": 5}], "output": [{"price": 5}]},
     ["output:", '-    "price": 5']),
    ({"steps": [], "input": [{"a": 1}], "output": [{"a": 2}]}, ['-    "a": 2', '+    "a": 1']),
    ({"steps": [], "input": [{"a": 1}], "output": [{"a": True}]}, ['-    "a": true', '+    "a": 1']),
    ({"steps": [], "input": [{"a": 1}], "output": [{"a": "1"}]}, ['-    "a": "1"', '+    "a": 1']),
    ({"steps": [], "input": [{"a": 1}], "output": [{}]}, ['+    "a": 1']),
    ({"steps": [], "input": [{"a": 1}, {"b": 1}], "output": [{"a": 1}]}, ['+    "b": 1']),
    ({"steps": [], "input": [{"a": 1}, {"b": 1}], "output": [{"b": 1}, {"a": 1}]}, ["output:"]),
    ({"steps": [], "input": ['{"a":1.0}'], "output": ['{"a":1}']}, ['-  "{\\"a\\":1}"', '+  "{\\"a\\":1.0}"']),
    ({"steps": [{"where": "true"}], "input": [{}], "skipped": {"where": 1}}, ["skipped:", '-  "where": 1']),
    ({"steps": [{"where": "false"}], "input": [{}], "skipped": {}}, ["skipped:", '+  "where": 1']),
    ({"steps": [{"where": "true"}], "input": ["{"], "output": []}, ["failed:", '+    "code": "not_json",']),
    ({"steps": [{"where": "true"}], "input": ["{"], "failed": [{"code": "other"}]}, ['-    "code": "other"']),
    ({"steps": [{"where": "true"}], "input": ["{"], "failed": [{"message": "weather"}]}, ['-    "message": "weather"']),
    ({"steps": [], "input": [{}], "failed": [{"input": 1}]}, ["failed:", '-    "input": 1']),
    ({"steps": [], "input": [{}], "output_records": [{"op": "delete"}]},
     ['-    "op": "delete"', '+    "op": "insert"']),
    ({"route": "none", "input": [], "output": []}, ["there is no route 'none'. Routes: warehouse, audit."]),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "lines"), FAILING)
def test_what_is_not_as_expected_is_shown(fresh: Project, parts: dict[str, Any], lines: list[str]) -> None:
    code, out, _ = run(fresh.folder, case(**parts))
    assert code == 1
    shown = [line.strip() for line in out.splitlines()]
    assert shown[0] == f"FAILED  {fresh.folder / 'cases.yaml'}:1  it"
    assert [line for line in lines if line not in shown] == [], out
    assert shown[-1] == "1 case, 1 failed"


def test_machines_get_every_case_with_its_place(fresh: Project) -> None:
    one = "  - {name: %s, steps: [], input: [{}], output: [%s]}\n"
    text = "cases:\n" + one % ("a", "{}") + one % ("b", "")
    code, out, _ = run(fresh.folder, text, "--json")
    report = json.loads(out)
    assert (code, report["passed"], report["failed"]) == (1, 1, 1)
    assert [(each["name"], each["line"], each["passed"]) for each in report["cases"]] == [
        ("a", 2, True),
        ("b", 3, False),
    ]
    assert [each["about"] for each in report["cases"][1]["mismatches"]] == ["output"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("9007199254740993.0", "9007199254740992"),
        ("0.1", "0.1000000000000000055511151231257827"),
        ("1e400", "2e400"),
        ("1e-400", "0"),
        ("123456789012345678901234567890.5", "123456789012345678901234567890"),
    ],
)
def test_numbers_that_differ_in_any_digit_differ_and_are_shown_as_written(fresh: Project, one: str, other: str) -> None:
    text = 'cases: [{name: it, steps: [], input: [\'{"same":1.50,"x":%s}\'], output: [{x: %s, same: 1.5}]}]\n'
    code, out, _ = run(fresh.folder, text % (one, other))
    shown = [line.strip() for line in out.splitlines()]
    assert (code, f'-    "x": {other}' in shown, f'+    "x": {one}' in shown, "Infinity" in out) == (
        1,
        True,
        True,
        False,
    )
    assert '"same": 1.5,' in shown, "what is the same is no difference, however it is spelt"
    assert run(fresh.folder, text % (other, other))[0] == 0
    assert run(fresh.folder, text % (one, one))[0] == 0


@pytest.mark.parametrize("number", ["9007199254740993.0", "1e400", "+.5", "1.", "-007.50"])
def test_a_number_goes_in_as_it_is_written(fresh: Project, number: str) -> None:
    spelt = {"+.5": "0.5", "1.": "1", "-007.50": "-7.50"}.get(number, number)
    text = "cases: [{name: it, steps: [], input: [{x: %s}], output: ['{\"x\": %s}']}]\n"
    assert run(fresh.folder, text % (number, spelt))[0] == 0


STEPS = """
def talks(table):
    print("hello")
    return table
def leaves(table): raise SystemExit(3)
def zap(table): return table.set_column(4, "op", [["zap"] * table.num_rows])
"""


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("talks", {"output": [{}]}),
        ("leaves", {"output": [], "failed": [{"code": "python_error", "message": "SystemExit: 3"}]}),
        ("zap", {"output": [], "failed": [{"code": "bad_result", "message": "the op 'zap'"}]}),
    ],
)
def test_whatever_a_function_of_the_user_does_a_script_gets_its_json(
    fresh: Project, function: str, expected: dict[str, Any]
) -> None:
    (fresh.folder / "steps.py").write_text(STEPS)
    steps = [{"python": {"file": "steps.py", "function": function}}]
    code, out, _ = run(fresh.folder, case(steps=steps, input=[{}], **expected), "--json")
    assert (code, json.loads(out)["passed"]) == (0, 1), out


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "1:1", "empty"),
        ("- a\n", "1:1", "a mapping"),
        ("cases: []\n", "1:8", "at least 1"),
        ("cases:\n  - {name: a, input: [], output: []}\n", "2:5", "either a 'route' or 'steps'"),
        ("cases:\n  - {name: a, steps: [], output: []}\n", "2:5", "either an 'input' or 'input_records'"),
        ("cases:\n  - {name: a, steps: [], input: []}\n", "2:5", "says what it expects"),
        ("cases:\n  - {name: a, steps: [], input: [], outputs: []}\n", "2:37", "Did you mean 'output'?"),
        ("cases:\n  - name: a\n    steps: [{were: x}]\n    input: []\n    output: []\n",
         "3:14", "Did you mean 'where'?"),
        ("cases:\n  - name: a\n    steps: [{omit: {fields: [a], namespace: '('}}]\n    input: []\n    output: []\n",
         "3:45", "not a regular expression"),
        ("cases:\n  - {name: a, steps: [{where: a}], input: [],\n     skipped: {namespace: 0, wher: 0}}\n",
         "3:30", "cases[0].skipped.wher: there is no step 'wher'. Did you mean 'where'?"),
        ("cases:\n  - {name: a, steps: [{where: a}], input: [], skipped: {where#2: 0}}\n", "2:57", "no step 'where#2'"),
        ("cases:\n  - {name: a, route: audit, input: [], skipped: {where: 0}}\n", "2:50", "no step 'where'. Remove it"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_of_cases_is_told_with_its_line(fresh: Project, text: str, place: str, words: str) -> None:
    code, out, err = run(fresh.folder, text)
    assert (code, out) == (78, "")
    assert f"cases.yaml:{place}: " in err
    assert words in err


def test_without_files_those_beside_the_config_are_run(fresh: Project) -> None:
    ran = fresh.penstock("test")
    assert (ran.code, ran.out) == (1, "")
    assert "there are no cases" in ran.err
    (fresh.folder / "tests").mkdir()
    for name in ("b.yml", "a.yaml"):
        (fresh.folder / "tests" / name).write_text(case(route="audit", input=[{}], output=[{}]))
    ran = fresh.penstock("test")
    assert ran.code == 0
    assert [line.split()[1].split("/")[-1] for line in ran.out.splitlines()[:-1]] == ["a.yaml:1", "b.yml:1"]


def test_names_and_data_cannot_steer_a_terminal(fresh: Project) -> None:
    text = json.dumps({"cases": [{"name": "\x1b[2J", "steps": [], "input": ["\x9b"], "output": []}]})
    assert "\x1b" not in run(fresh.folder, text)[1]
    assert "\x9b" not in run(fresh.folder, text)[1]


def test_cases_with_steps_of_their_own_need_no_pipeline(tmp_path: Path) -> None:
    assert run(tmp_path, case(steps=[], input=[{}], output=[{}]))[0] == 0
    assert run(tmp_path, case(route="a", input=[{}], output=[{}]))[0] == 78


def test_the_cases_of_the_guide_do_what_it_says(tmp_path: Path) -> None:
    guide = Path(__file__).parents[2] / "docs/how-to/test-a-route.md"
    (text,) = re.findall(r"```yaml\n(.*?)```", guide.read_text(), re.DOTALL)
    (tmp_path / "pipeline.yaml").write_text(CONFIG)
    code, out, _ = run(tmp_path, text)
    assert (code, out.splitlines()[-1]) == (0, "2 cases, all passed")
