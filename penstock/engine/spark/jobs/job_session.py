"""A Spark session for one job. It shares nothing with the engine of the pipeline, which may run meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING

from penstock.config.pipeline_config import PipelineConfig
from penstock.engine.spark.jvm import JvmDied, StartingJvm, has_jvm
from penstock.engine.spark.session_settings import session_settings
from penstock.engine.spark.spark_session import build_session
from penstock.errors import PenstockError
from penstock.stop_signals import call_on_stop_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCHES = {"spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20)}
"""Rows of packed items are large: by number alone, a batch of them would fill the memory."""


@contextmanager
def job_session(config: PipelineConfig) -> Iterator[SparkSession]:
    """With the pipeline's own settings of Spark. What it spills is in a folder of its own, in ``TMPDIR``. It ends with
    its JVM, and this process can start no other; one that has a JVM already uses that, and goes on with it. A signal to
    stop cancels the job: whatever that raises becomes ``KeyboardInterrupt``."""
    with TemporaryDirectory(prefix="penstock-job-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        extra = {**_BATCHES, **config.engine.spark}
        settings = session_settings(config.name, config.engine.master, scratch, extra, only_arrow=True)
        jvm = None if has_jvm() else StartingJvm(settings, scratch, scratch / "spark-traces.log")
        try:
            spark = _build(settings, jvm)
            try:
                with _cancel_on_stop(spark):
                    yield spark
            finally:
                if jvm is not None:
                    # Spark's threads of this process would complain about a JVM that is only killed.
                    spark.stop()
        finally:
            if jvm is not None:
                jvm.kill()


@contextmanager
def _cancel_on_stop(spark: SparkSession) -> Iterator[None]:
    stopping = Event()

    def cancel() -> None:
        stopping.set()
        spark.sparkContext.cancelAllJobs()

    try:
        with call_on_stop_signals(cancel):
            yield
    except Exception:
        if stopping.is_set():
            raise KeyboardInterrupt from None
        raise


def _build(settings: dict[str, str], jvm: StartingJvm | None) -> SparkSession:
    try:
        return build_session(settings, jvm)
    except JvmDied as error:
        raise PenstockError(
            "PEN-ENG-081", f"there is no JVM to run this job in: {error}.", "Free memory and disk space; run it again."
        ) from None
