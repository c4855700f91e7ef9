"""Starts the query in Spark that runs a route: its source, its steps, and who gets its batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.route_plan import RoutePlan
from penstock.engine.running.route_pace import Pace
from penstock.engine.running.route_tasks import reporting_frame
from penstock.engine.spark.route_source import route_source
from penstock.engine.stateful.shards import SHARDS
from penstock.log.local_log import LocalLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_STARTING = threading.Lock()
"""Held while a query starts: it takes the session's settings at that moment."""


def start_query(
    spark: SparkSession,
    plan: RoutePlan,
    log: LocalLog,
    pace: Pace,
    options: Mapping[str, str],
    checkpoint: Path,
    run_batch: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    """``options``: what the source is told. ``run_batch`` keeps the pace."""
    source = route_source(plan)
    spark.dataSource.register(source)
    reader = spark.readStream.format(source.name()).options(**options)
    # The query's thread inherits this: each route's tasks get their share of the cores.
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", plan.name)
    reports = reporting_frame(plan, log, reader.load())
    writer = reports.writeStream.queryName(plan.name).option("checkpointLocation", str(checkpoint))
    if pace.has_end:
        writer = writer.trigger(availableNow=True)
    else:
        # Spark's own interval uses the wall clock: setting that back would make it sleep for hours. So Spark goes
        # on at once, `run_batch` keeps the pace, and `pollingDelay` is how often an idle query looks.
        writer = writer.trigger(processingTime="0 seconds")
    settings = {"spark.sql.streaming.pollingDelay": f"{max(1, round(pace.look_every * 1000))}ms"}
    if plan.holding:
        settings["spark.sql.shuffle.partitions"] = str(SHARDS)
    with _STARTING, _settings(spark, settings):
        return writer.foreachBatch(run_batch).start()


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
