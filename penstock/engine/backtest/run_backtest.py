"""Runs a set of policies over recorded traces, beside the live one. Writes nothing, and may run beside the pipeline."""

from __future__ import annotations

from datetime import datetime

from penstock.engine.backtest.arrivals import Reading
from penstock.engine.backtest.backtest_report import BacktestReport, agreement, all_traces, set_counts
from penstock.engine.backtest.log_range import LogRange
from penstock.engine.backtest.policy_sets import ComparedSets
from penstock.engine.backtest.trace_tally import Tally
from penstock.engine.pipeline import Pipeline
from penstock.steps.sample.config import SampleConfig


def run_backtest(
    pipeline: Pipeline,
    route: str,
    candidate: SampleConfig,
    since: datetime | None = None,
    until: datetime | None = None,
    every: float | None = None,
) -> BacktestReport:
    """Compare a set of policies with that of a route's own step ``sample``, over the records of its sources that
    came in this time.

    Both begin with an empty state. What was replayed, and what the live route was told (a flush, a release), does not
    count. ``every``: how long a batch lasts, in seconds; by default what the route waits from one to the next.
    """
    config = pipeline.config.routes[route]
    chosen = LogRange.between(pipeline.log, config.from_, since, until)
    seconds = config.interval if every is None else every
    plan = pipeline.plan(route)
    sets = ComparedSets.of(plan, candidate)
    tally: Tally = {}
    if chosen.records:
        reading = Reading(plan, pipeline.log, sets, max(1, round(seconds * 10**6)))
        tally = _tally(pipeline, reading, chosen)
    return BacktestReport(
        route,
        since,
        until,
        chosen.records,
        seconds,
        all_traces(tally),
        agreement(tally),
        set_counts(tally, sets),
    )


def _tally(pipeline: Pipeline, reading: Reading, chosen: LogRange) -> Tally:
    # Imported here: a range without records needs no Spark.
    from penstock.engine.spark.jobs.backtest_job import tally_range
    from penstock.engine.spark.jobs.job_session import job_session

    with job_session(pipeline.config) as spark:
        return tally_range(spark, reading, chosen)
