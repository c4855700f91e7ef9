"""A job that does nothing, in the way that batches work, so that the first batch finds everything started.

It starts a Python worker per core, and makes the JVM load and compile what reading a Python data source needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.engine.delivery.task_report import REPORT_SCHEMA, TaskReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FirstJob(DataSource):
    """Runs ``cores`` tasks, each of which returns an empty report."""

    @classmethod
    def name(cls) -> str:
        return "penstock_first_job"

    def schema(self) -> StructType:
        return from_arrow_schema(REPORT_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(int(self.options["cores"]))


class _Reader(DataSourceReader):
    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(task) for task in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield TaskReport(0, 0).to_batch()


def run_first_job(spark: SparkSession) -> None:
    spark.dataSource.register(FirstJob)
    cores = str(spark.sparkContext.defaultParallelism)
    spark.read.format(FirstJob.name()).option("cores", cores).load().collect()
