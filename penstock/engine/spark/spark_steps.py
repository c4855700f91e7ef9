"""Applies the steps of a route from its first Spark step on to the route's frame, a stream as a rule.

Behind every Spark step runs a task of ours: it counts what the step returned, runs the Arrow steps that follow, and
passes on to the next Spark step or stages the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.engine.delivery.task import run_steps, run_task
from penstock.engine.delivery.task_report import REPORT_SCHEMA
from penstock.engine.route_plan import PlannedStep, RoutePlan, links
from penstock.errors import RouteError
from penstock.record import RECORD_SCHEMA
from penstock.steps.chain import Chain
from penstock.steps.contract import FATE, SparkStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ArrowFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def apply_spark_steps(plan: RoutePlan, frame: DataFrame) -> DataFrame:
    """The frame of reports that running the plan's ``rest`` over a frame of records gives."""
    steps = plan.rest
    places = [place for place, step in enumerate(steps) if not step.is_arrow]
    for place, following in pairwise([*places, len(steps)]):
        step, arrow = steps[place], steps[place + 1 : following]
        returned = _apply(step, frame)
        if following < len(steps):
            between = _arrow_steps(plan, step.label, arrow, steps[following].label)
            frame = returned.mapInArrow(between, from_arrow_schema(RECORD_SCHEMA))
        else:
            frame = returned.mapInArrow(_staging(plan, step.label, arrow), from_arrow_schema(REPORT_SCHEMA))
    return frame


def _apply(step: PlannedStep, frame: DataFrame) -> DataFrame:
    built = step.implementation(step.config)
    assert isinstance(built, SparkStep)
    returned = built.apply(frame)
    columns = [*RECORD_SCHEMA.names, FATE]
    if missing := [name for name in columns if name not in returned.columns]:
        raise RouteError(
            "PEN-STP-003",
            f"step '{step.label}' returns no column {', '.join(map(repr, missing))}.",
            f"A step in Spark returns the columns that it was given, and '{FATE}', with what becomes of each row.",
        )
    return returned.select(*columns)


def _arrow_steps(plan: RoutePlan, after: str, steps: tuple[PlannedStep, ...], before: str) -> ArrowFunction:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        # Named by its place in the plan, so that a retried task replaces its own report.
        name = f"between-{after}-{task}"
        yield from run_steps(plan, batches, name, before, chain=Chain(links(steps), numbers_items=False), after=after)

    return run


def _staging(plan: RoutePlan, after: str, steps: tuple[PlannedStep, ...]) -> ArrowFunction:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield run_task(plan, batches, chain=Chain(links(steps), numbers_items=False), after=after).to_batch()

    return run
