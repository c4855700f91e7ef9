"""Reads a file of sampling policies: the options of a step ``sample``, or only its list of policies."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from penstock.config.component import ReadingContext
from penstock.config.document import Document, Node, parse
from penstock.config.loading import text_of
from penstock.config.problems import ConfigError, Problem
from penstock.config.translation import translate
from penstock.steps.sample.config import SampleConfig

_KEY = "policies"
_NO_FILE = "Give the path of a file with the options of a step `sample`."
_FIRST_LINES = "Begin with `policies:`, and below it one `- {name: ..., type: ...}` per policy."


def load_policies(path: Path, variables: Mapping[str, str] = os.environ) -> SampleConfig:
    """The options in a file, with ``${VAR}`` filled in. Raises ``ConfigError`` with everything that is wrong in it."""
    file = str(path)
    document = parse(text_of(file, _NO_FILE), file, variables, first_lines=_FIRST_LINES)
    problems = list(document.problems)
    root = document.root
    if root is not None and not isinstance(root.value, dict | list):
        what = "a file of policies is a mapping of the options of `sample`, or a list of policies"
        problems.append(Problem(file, root.position, "", what, _FIRST_LINES))
    elif root is not None:
        root = root if isinstance(root.value, dict) else _as_option(root)
        reading = ReadingContext(path.absolute().parent)
        try:
            config = SampleConfig.model_validate(root.value, context=reading)
            if not problems:
                return config
        except ValidationError as error:
            problems += translate(error.errors(include_url=False), Document(file, root, []), reading)
    raise ConfigError(file, problems)


def _as_option(policies: Node) -> Node:
    """A list of policies as the options that it stands for."""
    return Node(policies.position, {_KEY: policies.value}, {_KEY: policies}, {_KEY: policies.position})
