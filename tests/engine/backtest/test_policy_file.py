"""A file of policies is read as the options of the step, and says where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.problems import ConfigError
from penstock.engine.backtest.policy_file import load_policies

MAPPING = """\
primary_cache_size: 500
policies:
  - {name: errors, type: status_code, status_code: {status_codes: [ERROR]}}
"""
LIST = "- {name: errors, type: status_code, status_code: {status_codes: [ERROR]}}\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "policies.yaml"
    path.write_text(text)
    return path


def test_options_of_the_step(tmp_path: Path) -> None:
    config = load_policies(written(tmp_path, MAPPING))
    assert (config.primary_cache_size, [policy.name for policy in config.policies]) == (500, ["errors"])


def test_a_bare_list_of_policies(tmp_path: Path) -> None:
    assert load_policies(written(tmp_path, LIST)).policies == load_policies(written(tmp_path, MAPPING)).policies


def test_variables_are_filled_in(tmp_path: Path) -> None:
    path = written(tmp_path, "- {name: base, type: probabilistic, sampling_percentage: '${SHARE}'}\n")
    (policy,) = load_policies(path, {"SHARE": "12.5"}).policies
    assert policy.model_dump()["sampling_percentage"] == 12.5


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("", "1:1", "the file is empty"),
        ("# nothing\n", "1:1", "the file is empty. Begin with `policies:`"),
        ("errors\n", "1:1", "a file of policies is a mapping of the options of `sample`, or a list of policies"),
        ("policies: []\n", "1:11", "policies: needs at least 1, and has 0"),
        ("polices:\n  - {name: all, type: always_sample}\n", "1:1", "unknown key 'polices'. Did you mean 'policies'?"),
        ("policies:\n  - {name: a, type: latncy}\n", "2:21", "policies[0].type: there is no policy of type 'latncy'"),
        ("- {name: a, type: latency}\n", "1:3", "policies[0].threshold_ms: missing key 'threshold_ms'"),
        ("- {name: a, type: always_sample}\n- {name: a, type: threshold}\n", "2:10", "there is a policy 'a' already"),
        ("- {name: a, type: string_attribute, key: k, values: ['('], regex: true}\n", "1:3", "is not a regular"),
        ("- {name: a, type: ottl_condition, span: ['nme == 1']}\n", "1:1", "condition `nme == 1`, character 1: "),
        ("policies: [\n", "2:1", ""),
        ("secondary_cache_size: 9\nprimary_cache_size: 9\npolicies: [{name: a, type: threshold}]\n", "1:1", "half of"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, place: str, what: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_policies(path)
    (problem,) = raised.value.problems
    assert str(problem).startswith(f"{path}:{place}: ")
    assert what in str(problem)


def test_too_many_conditions_are_refused(tmp_path: Path) -> None:
    lines = [f"- {{name: p{n}, type: string_attribute, key: k{n}, values: [x]}}" for n in range(61)]
    with pytest.raises(ConfigError, match="61 different conditions on spans, and there may be 60"):
        load_policies(written(tmp_path, "\n".join(lines)))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        load_policies(tmp_path / "none.yaml")
