"""Cases of a route or of some steps, as people write them in YAML: records that go in, and what must become of them.

A file of cases is read as strictly as a pipeline's: every error has its line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator

from penstock.config.choices import ChosenStep
from penstock.config.component import ComponentConfig, ReadingContext
from penstock.config.document import Node, parse
from penstock.config.loading import text_of
from penstock.config.problems import ConfigError, Position, Problem
from penstock.config.translation import translate
from penstock.engine.cases.exact_json import Real
from penstock.record import Mode, Op

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""The default timestamp of a record: a case must not depend on the time of day."""


Data = object
"""A JSON value as ``parse`` returns it, not converted further: a number keeps its text in ``Real``."""


class GivenRecord(ComponentConfig):
    """An input record, with the fields around its data."""

    data: Data = Field(default=None, description="A mapping is written as JSON; text is taken as it is.")
    namespace: str | None = Field(default=None, description="By default the route's first source.")
    op: Op = Field(default=Op.INSERT, description="insert, update, delete, command or noop.")
    mode: Mode = Field(default=Mode.SYNC, description="copy, sync or complete.")
    key: str | None = Field(default=None, description="The record's key.")
    headers: dict[str, str] = Field(default={}, description="Headers, such as `token`.")
    timestamp: datetime = Field(default=NOON, description="When it came; by default 2026-01-01T12:00:00Z.")


class ExpectedRecord(ComponentConfig):
    """A record that must come out. Only what is written is compared."""

    data: Data = Field(default=None, description="A mapping is compared as JSON; text byte for byte.")
    namespace: str | None = Field(default=None, description="Its namespace.")
    op: Op | None = Field(default=None, description="Its op.")
    mode: Mode | None = Field(default=None, description="Its mode.")
    key: str | None = Field(default=None, description="Its key.")


class ExpectedFailure(ComponentConfig):
    """A record that must fail. Only what is written is compared."""

    input: int | None = Field(default=None, ge=1, description="Which record of the input, counted from 1.")
    step: str | None = Field(default=None, description="The step that fails it: `where`, or `where#2` for the second.")
    code: str | None = Field(default=None, description="The code of the failure, such as `not_json`.")
    message: str | None = Field(default=None, description="Text that its message must contain.")


class Case(ComponentConfig):
    """Records, the steps they go through, and what must become of them."""

    name: str = Field(min_length=1, description="What it shows.")
    route: str | None = Field(default=None, description="The route of the pipeline whose filters and steps are run.")
    steps: list[ChosenStep] | None = Field(default=None, description="Steps to run instead of a route's.")
    input: list[Data] | None = Field(
        default=None, description="The data of the records that go in: mappings, or text that is taken as it is."
    )
    input_records: list[GivenRecord] | None = Field(
        default=None, description="Records that go in, with namespace, op, key or headers."
    )
    output: list[Data] | None = Field(
        default=None, description="The data of the records that come out, in order: mappings, or the exact text."
    )
    output_records: list[ExpectedRecord] | None = Field(
        default=None, description="Records that come out, in order, with namespace, op, mode or key."
    )
    skipped: dict[str, int] | None = Field(
        default=None, description="How many each step skips: `{where: 1}`; also `namespace` and `only_keys`."
    )
    failed: list[ExpectedFailure] = Field(
        default=[], description="The records that fail, in the order of the input. By default none may."
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.route is None) == (self.steps is None):
            raise ValueError("a case has either a 'route' or 'steps'")
        if (self.input is None) == (self.input_records is None):
            raise ValueError("a case has either an 'input' or 'input_records'")
        if self.output is not None and self.output_records is not None:
            raise ValueError("a case has one of 'output' and 'output_records'")
        if self.output is None and self.output_records is None and self.skipped is None and not self.failed:
            raise ValueError("a case says what it expects: 'output', 'output_records', 'skipped' or 'failed'")
        return self

    @property
    def given(self) -> Sequence[GivenRecord]:
        if self.input_records is not None:
            return self.input_records
        return [GivenRecord(data=data) for data in self.input or ()]


class CaseFile(ComponentConfig):
    """All cases of a file."""

    cases: list[Case] = Field(min_length=1, description="The cases, run one by one.")


@dataclass(frozen=True)
class PlacedCase:
    """A case and its place in the file."""

    file: str
    line: int
    case: Case
    skipped: Mapping[str, tuple[str, Position]]
    """The steps that ``skipped`` names, each with its dotted key and where it stands."""


def load_cases(path: Path, variables: Mapping[str, str] = os.environ) -> list[PlacedCase]:
    """The cases of a file. Raises ``ConfigError`` with everything that is wrong in it."""
    file = str(path)
    text = text_of(file)
    fix = "Begin with `cases:`, and below it one `- name: ...` per case."
    if not text.strip():
        raise ConfigError(file, [Problem(file, Position(1, 1), "", "the file is empty", fix)])
    document = parse(text, file, variables, Real)
    problems = list(document.problems)
    root = document.root
    if root is not None and not isinstance(root.value, dict):
        problems.append(Problem(file, root.position, "", "a file of cases is a mapping", fix))
    elif root is not None:
        reading = ReadingContext(path.absolute().parent)
        try:
            read = CaseFile.model_validate(root.value, context=reading)
            if not problems:
                nodes = enumerate(root.entries["cases"].items)
                return [_placed(file, place, node, case) for (place, node), case in zip(nodes, read.cases, strict=True)]
        except ValidationError as error:
            problems += translate(error.errors(include_url=False), document, reading)
    raise ConfigError(file, problems)


def _placed(file: str, place: int, node: Node, case: Case) -> PlacedCase:
    named = node.entries["skipped"].keys if "skipped" in node.entries else {}
    keys = {step: (f"cases[{place}].skipped.{step}", position) for step, position in named.items()}
    return PlacedCase(file, node.position.line, case, keys)
