"""Runs a case on an engine: through the route's steps, into stage files, into the target, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from penstock.config.component import StepConfig
from penstock.destinations.contract import AnyDestination, Batch, TableBook
from penstock.engine.delivery.task import read_rows, run_task
from penstock.engine.route_plan import PlannedStep, RoutePlan, plan_steps
from penstock.record import Record, entries, placed
from penstock.registry import Kind, component
from tests.warehouse.case import DEFAULT_TABLE, Case, Contents, Delivery, Event, Expected, Row
from tests.warehouse.targets import Target

UNMAPPED = "_unmapped"


@dataclass
class NoteBook(TableBook):
    """Remembers what a destination notes: its schema changes, and which paths fill which columns."""

    statements: list[str] = field(default_factory=list)
    paths: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def note_change(self, table: str, statement: str) -> None:
        self.statements.append(statement)

    def note_paths(self, table: str, columns: Mapping[str, Sequence[str]]) -> None:
        known = self.paths.setdefault(table, {})
        for name, paths in columns.items():
            known[name] = list(dict.fromkeys([*known.get(name, []), *paths]))


@dataclass(frozen=True)
class CasePlan(RoutePlan):
    """A plan whose destination was made already."""

    made: AnyDestination = field(kw_only=True)

    def destination(self) -> AnyDestination:
        return self.made


@dataclass
class Run:
    """What became of the events, added up over all batches."""

    loaded: int = 0
    skipped: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    book: NoteBook = field(default_factory=NoteBook)

    def deliver(
        self,
        number: int,
        events: Sequence[Event],
        first: int,
        steps: tuple[PlannedStep, ...],
        made: AnyDestination,
        folder: Path,
        frame: int,
    ) -> None:
        """One batch, as a task and then the driver would treat it. The log brings it ``frame`` events at a time."""
        plan = CasePlan("warehouse", ("web",), ".*", steps, "", made.config, folder, made=made)
        records = placed(entries(Record(data_of(event), namespace="web") for event in events), 0, first)
        frames = [records.slice(start, frame) for start in range(0, len(events), frame)]
        report = run_task(plan, frames)
        self.skipped += sum(report.skipped.values())
        for file in report.failed:
            for rows in read_rows(file.path):
                self._note(rows.column("offset").to_pylist(), rows.column("message").to_pylist())
        batch = Batch("cases", "warehouse", number, {0: (first, first + len(events))})
        receipt = made.write(batch, report.parts, self.book)
        assert not [table.unavailable for table in receipt.tables if table.unavailable], receipt
        self.loaded += receipt.rows
        for failures in receipt.failures:
            self._note(failures.column("offset").to_pylist(), failures.column("message").to_pylist())

    def _note(self, offsets: Sequence[int], messages: Sequence[str]) -> None:
        for offset, message in zip(offsets, messages, strict=True):
            assert offset not in self.failed, "an event failed twice"
            self.failed[offset] = message


def run(case: Case, delivery: Delivery, target: Target, folder: Path, frame: int = 10_000) -> Run:
    """Deliver the events of a case. Every one of them is loaded, skipped or failed."""
    if case.existing:
        target.make(DEFAULT_TABLE, case.existing)
    steps = planned_steps(case.steps)
    adopted = {"adopt": [DEFAULT_TABLE]} if case.existing else {}
    made = target.destination({**adopted, **case.options})
    result = Run()
    first = 0
    for number, events in enumerate(case.cut(delivery)):
        if number == 1 and case.later is not None:
            made = target.destination({**adopted, **case.later})
        result.deliver(number, events, first, steps, made, folder, frame)
        first += len(events)
    assert result.loaded + result.skipped + len(result.failed) == len(case.events)
    return result


def planned_steps(steps: Sequence[Mapping[str, object]]) -> tuple[PlannedStep, ...]:
    configs: list[tuple[str, StepConfig]] = []
    for step in steps:
        ((name, options),) = step.items()
        configs.append((name, component(Kind.STEP, name).config_class().model_validate(options)))
    return plan_steps(configs)


def data_of(event: Event) -> bytes:
    return event if isinstance(event, bytes) else json.dumps(event, ensure_ascii=False).encode()


def check(case: Case, expected: Expected, result: Run, target: Target) -> None:
    """Compare what was done with what was to be done."""
    assert result.skipped == expected.skipped
    assert sorted(result.failed) == sorted(expected.failed), result.failed
    for number, words in expected.failed.items():
        for word in words:
            assert word in result.failed[number]
    there = target.look()
    assert sorted(there) == sorted(expected.tables)
    for table, contents in expected.tables.items():
        types = {name: target.types.get(kind, kind) for name, kind in contents.columns.items()}
        check_table(case, table, Contents(types, contents.rows), there[table])
    if expected.ddl is not None and target.speaks_postgres:
        assert [text.replace(f'"{target.schema}".', "") for text in result.book.statements] == list(expected.ddl)


def check_table(case: Case, table: str, expected: Contents, there: Contents) -> None:
    assert there.columns == expected.columns
    found = [readable(row) for row in there.rows]
    wanted = [readable(row) for row in expected.rows]
    key = (case.later or case.options).get("primary_key") or (case.existing.key if case.existing else ())
    if key:
        # Rows of a table with a key lie in no order.
        found, wanted = (sorted(rows, key=lambda row: str(sorted(row.items()))) for rows in (found, wanted))
    assert len(found) == len(wanted), found
    for row, meant in zip(found, wanted, strict=True):
        assert sorted(row) == sorted(meant), f"{row} is not {meant}"
        for name, value in meant.items():
            assert same(row[name], value), f"{table}.{name} is {row[name]!r}, not {value!r}"


def same(found: object, wanted: object) -> bool:
    """Whether a value is the one that was meant. True is not 1, 1 is not 1.0; but a numeric may stand for a double."""
    if isinstance(wanted, float):
        return isinstance(found, (float, Decimal)) and float(found) == wanted
    return type(found) is type(wanted) and found == wanted


def readable(row: Row) -> Row:
    """With ``_unmapped`` as an object, its numbers by their digits. One that an engine cannot read is kept under ''."""
    if UNMAPPED not in row:
        return row
    text = row[UNMAPPED] if isinstance(row[UNMAPPED], str) else json.dumps(row[UNMAPPED])
    kept = _exactly(str(text))
    if isinstance(kept, dict) and list(kept) == [""]:
        kept = _exactly("".join(kept[""]))
    return {**row, UNMAPPED: kept}


def _exactly(text: str) -> object:
    return json.loads(text, parse_int=_Number, parse_float=_Number)


@dataclass(frozen=True)
class _Number:
    """A number by its digits. Not a Python one, for which 1 and True are the same."""

    text: str = field(compare=False)
    value: Decimal = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", Decimal(self.text))
