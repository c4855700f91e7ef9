"""Runs a case: its records go through the real chain of the route, and what comes out is compared with what must.

No Spark, no log, no destination. JSON is compared by meaning (the order of keys and the spelling of numbers do not
count, every digit of a number does), unless the case gives the exact text.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.config.pipeline_config import PipelineConfig
from penstock.config.problems import ConfigError, Problem, suggestion
from penstock.engine.cases.case import Case, ExpectedFailure, GivenRecord, PlacedCase
from penstock.engine.cases.exact_json import lines, read, write
from penstock.engine.pipeline import route_plan
from penstock.engine.route_plan import PlannedStep, links, plan_steps
from penstock.errors import PenstockError
from penstock.record import Record, entries, placed, records
from penstock.steps.chain import NAMESPACE_LABEL, OF_FAILED_LABEL, ONLY_KEYS_LABEL, Chain, ChainOutcome


@dataclass(frozen=True)
class Mismatch:
    """One thing that is not as expected: ``about`` is ``output``, ``skipped``, ``failed`` or ``case``."""

    about: str
    lines: Sequence[str]
    """A unified diff from what was expected to what came, or a sentence."""


@dataclass(frozen=True)
class Verdict:
    placed: PlacedCase
    mismatches: Sequence[Mismatch]

    @property
    def passed(self) -> bool:
        return not self.mismatches


def run_case(placed_case: PlacedCase, config: PipelineConfig | None) -> Verdict:
    """Run one case. ``config`` is the pipeline that its route is in; a case with steps of its own needs none."""
    case = placed_case.case
    try:
        chain, namespace = _chain(case, config)
        batch = placed(entries(_record(given, namespace) for given in case.given), 0, 0)
        outcome = chain.run(batch)
    except PenstockError as error:
        return Verdict(placed_case, [Mismatch("case", [f"{error.what} {error.fix}".strip()])])
    return Verdict(placed_case, [*_output(case, outcome), *_skipped(case, outcome), *_failed(case, outcome)])


def require_steps(cases: Sequence[PlacedCase], config: PipelineConfig | None) -> None:
    """Raises ``ConfigError`` for cases that expect skips of a step that does not exist."""
    for file in dict.fromkeys(each.file for each in cases):
        problems = [problem for each in cases if each.file == file for problem in _unknown_steps(each, config)]
        if problems:
            raise ConfigError(file, problems)


def _unknown_steps(placed_case: PlacedCase, config: PipelineConfig | None) -> Iterator[Problem]:
    try:
        steps = [step.label for step in _steps(placed_case.case, config)]
    except PenstockError:
        return  # A route that is not there: running the case says so.
    for name, (key, position) in placed_case.skipped.items():
        if name not in (*steps, NAMESPACE_LABEL, ONLY_KEYS_LABEL, OF_FAILED_LABEL):
            fix = suggestion(name, steps, "steps") or "Remove it: there are no steps here."
            yield Problem(placed_case.file, position, key, f"there is no step '{name}'", fix)


def _steps(case: Case, config: PipelineConfig | None) -> Sequence[PlannedStep]:
    if case.route is None:
        return plan_steps([(step.name, step.config) for step in case.steps or ()])
    assert config is not None, "a case with a route is run with its pipeline"
    return route_plan(config, case.route).steps


def _chain(case: Case, config: PipelineConfig | None) -> tuple[Chain, str]:
    """The chain for the records, and the default namespace of records."""
    steps = _steps(case, config)
    _require_arrow(steps)
    if case.route is None:
        return Chain(links(steps)), ""
    assert config is not None, "a case with a route is run with its pipeline"
    plan = route_plan(config, case.route)
    return plan.head_chain(), plan.sources[0]


def _require_arrow(steps: Iterable[PlannedStep]) -> None:
    for step in steps:
        if not step.is_arrow:
            raise PenstockError(
                "PEN-ENG-017",
                f"the step '{step.label}' runs in Spark, which cases do without.",
                "Test the steps before and after it, each by themselves.",
            )


def _record(given: GivenRecord, namespace: str) -> Record:
    return Record(
        _bytes(given.data),
        given.namespace if given.namespace is not None else namespace,
        given.op,
        given.mode,
        given.key,
        given.headers,
        given.timestamp,
    )


def _bytes(data: object) -> bytes | None:
    if data is None or isinstance(data, str):
        return None if data is None else data.encode()
    return write(data).encode()


def _output(case: Case, outcome: ChainOutcome) -> list[Mismatch]:
    came = records(outcome.kept)
    if case.output is not None:
        expected: Sequence[object] = case.output
        actual: Sequence[object] = [_as_expected(data, record) for data, record in _aligned(case.output, came)]
    elif case.output_records is not None:
        expected = [{name: getattr(each, name) for name in each.model_fields_set} for each in case.output_records]
        actual = [_parts(record, some) for some, record in _aligned(expected, came)]
    else:
        return []
    return _compared("output", expected, actual)


def _aligned(expected: Sequence[object], came: Sequence[Record]) -> Iterable[tuple[object, Record]]:
    """Each output record with the expectation for its place; an empty mapping where there is none."""
    return ((expected[place] if place < len(expected) else {}, record) for place, record in enumerate(came))


def _as_expected(expected: object, record: Record) -> object:
    """The record's data as text if text is expected, else as JSON."""
    if record.data is None:
        return None
    text = record.data.decode("utf-8", "backslashreplace")
    if isinstance(expected, str):
        return text
    try:
        return read(text)
    except (ValueError, RecursionError):
        return text


def _parts(record: Record, expected: object) -> dict[str, object]:
    """The parts of a record to compare; all parts of an unexpected record."""
    wanted = expected if isinstance(expected, dict) and expected else {"data": {}, "namespace": "", "op": ""}
    parts: dict[str, object] = {name: getattr(record, name) for name in wanted if name != "data"}
    if "data" in wanted:
        parts["data"] = _as_expected(wanted["data"], record)
    return parts


def _skipped(case: Case, outcome: ChainOutcome) -> list[Mismatch]:
    if case.skipped is None:
        return []
    expected = {step: count for step, count in case.skipped.items() if count}
    return _compared("skipped", expected, dict(outcome.skipped))


def _failed(case: Case, outcome: ChainOutcome) -> list[Mismatch]:
    rows = sorted((row for batch in outcome.failures for row in batch.to_pylist()), key=lambda row: row["offset"])
    actual = []
    for place, row in enumerate(rows):
        came = {"input": row["offset"] + 1, "step": row["step"], "code": row["code"], "message": row["message"]}
        actual.append(_narrowed(came, case.failed[place]) if place < len(case.failed) else came)
    return _compared("failed", [each.model_dump(exclude_none=True) for each in case.failed], actual)


def _narrowed(came: dict[str, object], expected: ExpectedFailure) -> dict[str, object]:
    wanted = expected.model_dump(exclude_none=True)
    narrow = {name: came[name] for name in wanted}
    if expected.message is not None and expected.message in str(came["message"]):
        narrow["message"] = expected.message
    return narrow


def _compared(about: str, expected: object, actual: object) -> list[Mismatch]:
    left, right = list(lines(expected)), list(lines(actual))
    if left == right:
        return []
    return [Mismatch(about, list(difflib.unified_diff(left, right, "expected", "actual", lineterm="")))]
