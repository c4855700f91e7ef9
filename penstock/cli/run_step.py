"""``penstock run --step ROUTE``: one record at a time, shown and confirmed before it is delivered."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.cli._support.exit_codes import Exit
from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.operator import current_operator
from penstock.cli._support.record_lines import data_text, record_line
from penstock.cli._support.screen import JsonValue, console, counted, note, print_json_line, printable

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.engine.delivery.batch_pieces import Ranges
    from penstock.engine.operate.single_step import RecordPreview, Result, StepOutcome, Stepper

QUESTION = "deliver it? y(es), a(ck: go on without it), n(o: leave it and end): "


class Answer(StrEnum):
    YES = "yes"
    ACK = "ack"
    NO = "no"


WORDS = {"y": Answer.YES, "yes": Answer.YES, "a": Answer.ACK, "ack": Answer.ACK} | dict.fromkeys(
    ("n", "no", "q", "quit"), Answer.NO
)


def step_through(config: Path, route: str, yes: bool, as_json: bool) -> Exit:
    """Step through the route's records in the log. Ends with the log, at an answer, or where ``yes`` cannot go on."""
    from penstock.engine.operate.single_step import Stepper

    with _show_warnings():
        try:
            with open_pipeline(config) as pipeline, Stepper(pipeline, route) as stepper:
                return _step_records(stepper, yes, as_json)
        except KeyboardInterrupt:
            note("stopped; what is not delivered is in the log")
            return Exit.UNFINISHED


@contextmanager
def _show_warnings() -> Iterator[None]:
    """Show the engine's warnings (a destination is unavailable); this verb prints the rest itself."""
    waiting = logging.StreamHandler(sys.stderr)
    waiting.addFilter(lambda record: record.levelno == logging.WARNING)
    log = logging.getLogger("penstock")
    log.addHandler(waiting)
    try:
        yield
    finally:
        log.removeHandler(waiting)


def _step_records(stepper: Stepper, yes: bool, as_json: bool) -> Exit:
    from penstock.engine.operate.single_step import Fate

    begun = stepper.pending_ranges()
    if begun is not None:
        note(f"offsets {_places(begun)} were under way when the engine ended; they are delivered first, together")
        if (Answer.YES if yes else _ask()) is not Answer.YES:
            return Exit.UNFINISHED
        _print_result(stepper.deliver_pending(), as_json)
    passed = 0
    while (preview := stepper.next()) is not None:
        _print_preview(preview, as_json)
        answer = Answer.YES if yes else _ask()
        if answer is Answer.NO:
            return Exit.UNFINISHED
        if answer is Answer.ACK:
            stepper.acknowledge(preview, current_operator("run --step"))
            _print_outcome({"outcome": "acknowledged"}, "  acknowledged, not sent", as_json)
        else:
            result = stepper.deliver(preview)
            _print_result(result, as_json)
            if result.fate is Fate.REFUSED:
                if yes:
                    return Exit.UNFINISHED
                continue
        passed += 1
    note(f"{counted(passed, 'record')}; the log has no more for this route")
    return Exit.OK


def _ask() -> Answer:
    """The answer of the person, or the pipe; the end of input is a no."""
    while True:
        sys.stderr.write(QUESTION)
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            return Answer.NO
        answer = WORDS.get(line.strip().lower())
        if answer is not None:
            return answer


def _print_preview(preview: RecordPreview, as_json: bool) -> None:
    if as_json:
        print_json_line(preview_object(preview))
        return
    screen = console()
    for line in preview_lines(preview):
        screen.print(line, soft_wrap=True)
    screen.file.flush()


def preview_lines(preview: RecordPreview) -> Iterator[str]:
    """The record in the log, what each step makes of it, and what the destination will get."""
    yield record_line(preview.record)
    for outcome in preview.outcomes:
        yield from _outcome_lines(outcome)
    for table, rows in preview.rows.items():
        yield f"  > {counted(rows, 'row')} for {printable(table)}"


def _outcome_lines(outcome: StepOutcome) -> Iterator[str]:
    if outcome.code:
        yield f"  {outcome.step}: {outcome.fate}, {printable(outcome.code)}: {printable(outcome.message)}"
    elif not outcome.behind:
        yield f"  {outcome.step}: {outcome.fate}"
    for record in outcome.behind:
        yield f"  {outcome.step}: {printable(record.namespace)}  {printable(data_text(record.data))}"


def preview_object(preview: RecordPreview) -> dict[str, JsonValue]:
    return {
        "event": "record",
        "record": preview.record.facts(),
        "steps": [
            {
                "step": outcome.step,
                "outcome": str(outcome.fate),
                "code": outcome.code or None,
                "message": outcome.message or None,
                "records": [record.facts() for record in outcome.behind],
            }
            for outcome in preview.outcomes
        ],
        "rows": dict(preview.rows),
    }


def _print_result(result: Result, as_json: bool) -> None:
    reason = f": {result.step}: {printable(result.message)}" if result.message else ""
    facts: dict[str, JsonValue] = {"outcome": str(result.fate)}
    if result.message:
        facts |= {"step": result.step, "code": result.code, "message": result.message}
    _print_outcome(facts, f"  {result.fate}{reason}", as_json)


def _print_outcome(facts: dict[str, JsonValue], line: str, as_json: bool) -> None:
    if as_json:
        print_json_line({"event": "outcome", **facts})
    else:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _places(ranges: Ranges) -> str:
    return ", ".join(f"{partition}:{start}..{end - 1}" for partition, (start, end) in sorted(ranges.items()))
