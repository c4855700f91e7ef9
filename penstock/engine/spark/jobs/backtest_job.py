"""A backtest as one job of Spark: read and scan, decide by shard, add up by trace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.engine.backtest.arrivals import ARRIVAL_SCHEMA, Reading, read_arrivals
from penstock.engine.backtest.log_range import LogRange
from penstock.engine.backtest.trace_tally import TALLY_SCHEMA, Tally, add_tallies, tally_to_batch, tally_traces
from penstock.engine.backtest.verdicts import VERDICT_SCHEMA, reach_verdicts
from penstock.engine.stateful.shards import SHARDS
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RAISED = re.compile(r"^\w[\w.]*(?:Error|Exception|Full|Died)\b.*$", re.MULTILINE)
"""The last line of a trace, of Python or Java."""


def tally_range(spark: SparkSession, reading: Reading, chosen: LogRange) -> Tally:
    """Only counts come back to the driver. Rows travel twice: by shard, and by trace."""
    cores = spark.sparkContext.defaultParallelism
    stretches = chosen.cut(reading.log, cores)

    def scan(tasks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in tasks:
            for number in task.column(0).to_pylist():
                yield from read_arrivals(reading, stretches[number])

    def decide(arrivals: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return reach_verdicts(arrivals, reading.sets.build_steps(), reading.plan.key_secret)

    def count(verdicts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield tally_to_batch(tally_traces(verdicts))

    arrivals = spark.range(0, len(stretches), 1, len(stretches)).mapInArrow(scan, from_arrow_schema(ARRIVAL_SCHEMA))
    by_shard = arrivals.repartition(SHARDS, "shard").sortWithinPartitions("policy_set", "shard", "batch")
    verdicts = by_shard.mapInArrow(decide, from_arrow_schema(VERDICT_SCHEMA))
    by_trace = verdicts.repartition(cores, "high", "low").sortWithinPartitions("high", "low")
    try:
        return add_tallies(by_trace.mapInArrow(count, from_arrow_schema(TALLY_SCHEMA)).toArrow().to_batches())
    except (PySparkException, Py4JError) as error:
        raise PenstockError(
            "PEN-ENG-080",
            f"the backtest failed in Spark: {_reason(str(error))}",
            "Read what Spark said above. If the log is damaged, `penstock log verify` finds where.",
        ) from None


def _reason(text: str) -> str:
    """What was raised, in one line: the first that a trace ends with, which is that of the task."""
    found = [line for line in _RAISED.findall(text) if not line.startswith(("org.apache.spark", "pyspark."))]
    chosen = (found or text.strip().splitlines() or ["it does not say why."])[0]
    return chosen.removeprefix("penstock.errors.LogError: ")[:500]
