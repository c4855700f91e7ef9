"""Spark's own stream from a text file to text files: a process of its own, which prints the seconds that it took.

    python -m bench.transport.spark_files <file> <folder> <plain or functions>

``plain`` copies the lines. ``functions`` does what the three steps do: it parses the fields, whose types it is told,
keeps what fulfils the condition, drops one field and renames another. Two cores, as ours has; all that is there, in
one batch. The seconds are Spark's own, from planning the batch to its commit, without the start of the JVM.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CORES = 2
FIELDS = "id BIGINT, page STRING, user STRING, at DOUBLE, session STRING"


def seconds_of_spark(source: Path, folder: Path, functions: bool) -> float:
    """Run this module and give what it prints."""
    command = [sys.executable, "-m", __name__, str(source), str(folder), "functions" if functions else "plain"]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"Spark did not copy the file:\n{ended.stderr[-4000:]}")
    return float(ended.stdout.splitlines()[-1])


def transformed(lines: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sf

    fields = lines.select(sf.from_json("value", FIELDS).alias("data")).select("data.*").where("at > 0")
    kept = fields.drop("session").withColumnRenamed("page", "path")
    return kept.select(sf.to_json(sf.struct(*kept.columns)).alias("value"))


def main(source: Path, folder: Path, functions: bool) -> None:
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.local.dir", scratch).config("spark.driver.host", "127.0.0.1").getOrCreate()
        try:
            lines = spark.readStream.option("pathGlobFilter", source.name).text(str(source.parent))
            stream = transformed(lines) if functions else lines
            writer = stream.writeStream.format("text").option("checkpointLocation", f"{scratch}/checkpoint")
            query = writer.trigger(availableNow=True).start(str(folder))
            query.awaitTermination()
            batches = [progress for progress in query.recentProgress if progress.numInputRows]
            print(sum(progress.durationMs["triggerExecution"] for progress in batches) / 1000)
        finally:
            spark.stop()


if __name__ == "__main__":
    given, target, kind = sys.argv[1:]
    main(Path(given), Path(target), kind == "functions")
