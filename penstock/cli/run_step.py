"""``penstock run --step ROUTE``: one record at a time, shown before it is delivered and asked for."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.cli._support.exit_codes import Exit
from penstock.cli._support.open_pipeline import opened
from penstock.cli._support.operator import operator
from penstock.cli._support.record_lines import data_text, record_line, record_object
from penstock.cli._support.screen import JsonValue, console, counted, note, print_json_line, printable

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.engine.delivery.batch_pieces import Ranges
    from penstock.engine.operate.single_step import Look, Passage, Result, Stepper

QUESTION = "deliver it? y(es), a(ck: go on without it), n(o: leave it and end): "


class Answer(StrEnum):
    YES = "yes"
    ACK = "ack"
    NO = "no"


WORDS = {"y": Answer.YES, "yes": Answer.YES, "a": Answer.ACK, "ack": Answer.ACK} | dict.fromkeys(
    ("n", "no", "q", "quit"), Answer.NO
)


def step_through(config: Path, route: str, yes: bool, as_json: bool) -> Exit:
    """Go through what waits in the log for the route. Ends at its end, at an answer, or where ``yes`` cannot go on."""
    from penstock.engine.operate.single_step import Stepper

    with _waiting_said():
        try:
            with opened(config) as pipeline, Stepper(pipeline, route) as stepper:
                return _walk(stepper, yes, as_json)
        except KeyboardInterrupt:
            note("stopped; what is not delivered is in the log")
            return Exit.UNFINISHED


@contextmanager
def _waiting_said() -> Iterator[None]:
    """Of what the engine tells its log, only that a destination is away: the rest is said here in its place."""
    waiting = logging.StreamHandler(sys.stderr)
    waiting.addFilter(lambda record: record.levelno == logging.WARNING)
    log = logging.getLogger("penstock")
    log.addHandler(waiting)
    try:
        yield
    finally:
        log.removeHandler(waiting)


def _walk(stepper: Stepper, yes: bool, as_json: bool) -> Exit:
    from penstock.engine.operate.single_step import Fate

    begun = stepper.begun()
    if begun is not None:
        note(f"offsets {_places(begun)} were under way when the engine ended; they are delivered first, together")
        if (Answer.YES if yes else _ask()) is not Answer.YES:
            return Exit.UNFINISHED
        _tell_result(stepper.finish_begun(), as_json)
    passed = 0
    while (look := stepper.next()) is not None:
        _tell(look, as_json)
        answer = Answer.YES if yes else _ask()
        if answer is Answer.NO:
            return Exit.UNFINISHED
        if answer is Answer.ACK:
            stepper.acknowledge(look, operator("run --step"))
            _say({"outcome": "acknowledged"}, "  acknowledged, not sent", as_json)
        else:
            result = stepper.deliver(look)
            _tell_result(result, as_json)
            if result.fate is Fate.REFUSED:
                if yes:
                    return Exit.UNFINISHED
                continue
        passed += 1
    note(f"{counted(passed, 'record')}; the log has no more for this route")
    return Exit.OK


def _ask() -> Answer:
    """What the person, or the pipe, says; the end of input is a no."""
    while True:
        sys.stderr.write(QUESTION)
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            return Answer.NO
        answer = WORDS.get(line.strip().lower())
        if answer is not None:
            return answer


def _tell(look: Look, as_json: bool) -> None:
    if as_json:
        print_json_line(look_object(look))
        return
    screen = console()
    for line in look_lines(look):
        screen.print(line, soft_wrap=True)
    screen.file.flush()


def look_lines(look: Look) -> Iterator[str]:
    """The record as it is in the log, what each step makes of it, and what the destination will be given."""
    yield record_line(look.record)
    for passage in look.passages:
        yield from _passage_lines(passage)
    for table, rows in look.rows.items():
        yield f"  > {counted(rows, 'row')} for {printable(table)}"


def _passage_lines(passage: Passage) -> Iterator[str]:
    if passage.code:
        yield f"  {passage.step}: {passage.fate}, {printable(passage.code)}: {printable(passage.message)}"
    elif not passage.behind:
        yield f"  {passage.step}: {passage.fate}"
    for record in passage.behind:
        yield f"  {passage.step}: {printable(record.namespace)}  {printable(data_text(record.data))}"


def look_object(look: Look) -> dict[str, JsonValue]:
    return {
        "event": "record",
        "record": record_object(look.record),
        "steps": [
            {
                "step": passage.step,
                "outcome": str(passage.fate),
                "code": passage.code or None,
                "message": passage.message or None,
                "records": [record_object(record) for record in passage.behind],
            }
            for passage in look.passages
        ],
        "rows": dict(look.rows),
    }


def _tell_result(result: Result, as_json: bool) -> None:
    reason = f": {result.step}: {printable(result.message)}" if result.message else ""
    facts: dict[str, JsonValue] = {"outcome": str(result.fate)}
    if result.message:
        facts |= {"step": result.step, "code": result.code, "message": result.message}
    _say(facts, f"  {result.fate}{reason}", as_json)


def _say(facts: dict[str, JsonValue], line: str, as_json: bool) -> None:
    if as_json:
        print_json_line({"event": "outcome", **facts})
    else:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _places(ranges: Ranges) -> str:
    return ", ".join(f"{partition}:{start}..{end - 1}" for partition, (start, end) in sorted(ranges.items()))
