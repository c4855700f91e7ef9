"""Shows what flows through a route, up to any step, without touching it: no Spark, no offsets, no destination."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

from penstock.engine.pipeline import Pipeline
from penstock.engine.route_plan import PlannedStep, links
from penstock.errors import PenstockError
from penstock.record import Record, records
from penstock.steps.chain import Chain
from penstock.steps.contract import namespace_pattern

POLL = 0.2


def tap(
    pipeline: Pipeline, route: str, step: str | None, oldest: bool, follow: bool, stopping: Event
) -> Iterator[Record]:
    """Records as they are after ``step`` (default: after the last one), from the oldest or from now on.

    Ends when ``stopping`` is set, or at the end of the log if not told to ``follow``.
    """
    plan = pipeline.plan(route)
    chain = Chain(links(_up_to(plan.steps, route, step)), namespace_pattern(plan.namespace), plan.only_keys)
    positions: dict[int, int] = {}
    first = True
    while not stopping.is_set():
        for partition in sorted(pipeline.log.partitions(plan.sources)):
            bounds = pipeline.log.bounds(partition)
            start = positions.setdefault(partition, bounds.oldest if oldest or not first else bounds.end)
            for batch in pipeline.log.read(partition, start, bounds.end):
                for _, outcome in chain.runs(batch):
                    yield from records(outcome.kept)
            positions[partition] = max(start, bounds.end)
        if not follow:
            return
        first = False
        stopping.wait(POLL)


def _up_to(steps: tuple[PlannedStep, ...], route: str, label: str | None) -> tuple[PlannedStep, ...]:
    labels = [step.label for step in steps]
    if label is not None and label not in labels:
        raise PenstockError(
            "PEN-ENG-006", f"route '{route}' has no step '{label}'.", f"Its steps: {', '.join(labels) or 'none'}."
        )
    chosen = steps if label is None else steps[: labels.index(label) + 1]
    for step in chosen:
        if not step.is_arrow:
            raise PenstockError(
                "PEN-ENG-007",
                f"'{step.label}' runs in Spark and cannot be tapped.",
                f"Tap a step before it, for example: penstock tap {route}:{labels[0]}",
            )
    return chosen
