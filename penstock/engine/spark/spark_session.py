"""The Spark session, with the settings that a pipeline of micro-batches wants."""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.delivery.deliver_batch import Stopped
from penstock.engine.spark.jvm import start_jvm
from penstock.errors import RouteError
from penstock.redaction import SECRET_NAME, add_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGING = Path(__file__).with_name("log4j2.properties")
_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_STREAMING = "org.apache.spark.sql.execution.streaming"


def master_with_slots(master: str, cores: int, routes: int, tasks: int) -> str:
    """The master, with enough task slots that two routes whose tasks all hang leave slots for the others: a route runs
    one batch at a time, in at most ``tasks`` tasks or one per core. Only a local master is changed, and ``local[4]``
    means four cores."""
    found = re.fullmatch(r"local\[(\*|\d+)\]", master)
    if found is None:
        return master
    wanted = cores if found[1] == "*" else int(found[1])
    return f"local[{wanted if routes < 2 else max(wanted, tasks) * min(routes, 3)}]"


def build_session(name: str, master: str, scratch: Path, extra: Mapping[str, str]) -> SparkSession:
    """Start Spark, or return the running session. ``extra`` settings override ours.

    ``scratch`` belongs to this driver alone: what a killed JVM left there is removed.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._gateway is None:
        shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True, exist_ok=True)
    ours = {**_settings(scratch), **_access_settings(master)}
    settings = {"spark.master": master, "spark.app.name": name, **_merged_settings(ours, extra)}
    add_secrets(secret for key, secret in settings.items() if SECRET_NAME.search(key))
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with explain_start_errors():
        if SparkContext._gateway is None:
            traces = scratch.parent / "spark-traces.log"
            SparkContext._ensure_initialized(gateway=start_jvm(settings, scratch, traces))
        spark = builder.getOrCreate()
    # Importing Spark turns on verbose logging of its gateway.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("py4j.clientserver").addFilter(_is_no_stop)
    return spark


@contextmanager
def explain_start_errors() -> Iterator[None]:
    """Turns errors at Spark's start, which come from a setting or from Java, into one line without stack traces."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise RouteError(
            "PEN-ENG-003",
            f"Spark did not start: {_cause(str(error))}",
            "Check `engine.master` and `engine.spark`, and Java's output above; `penstock doctor` checks Java.",
        ) from None


def _cause(text: str) -> str:
    """The innermost cause in Spark's message, in one line."""
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "..."))
    ]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    # Py4J puts its own line before the exception.
    chosen = causes[-1:] or [line for line in lines if not line.startswith("An error occurred while calling")][:1]
    found = re.sub(r"^: ", "", " ".join(chosen or lines[:1])) or "it does not say why"
    return f"{found[:500].rstrip('.')}."


def mute_query_errors(spark: SparkSession) -> None:
    """Do not log query errors: a batch can leave Spark only by raising, Spark logs that with its trace, and our own
    stop is not an error."""
    _set_query_log_level(spark, "OFF")


def unmute_query_errors(spark: SparkSession) -> None:
    """Log query errors again, after one route has stopped and the engine goes on."""
    _set_query_log_level(spark, "ERROR")


def cancel_jobs(spark: SparkSession, group: str, reason: str) -> None:
    """Cancel the jobs of a query; ``group`` is its run id."""
    spark.sparkContext._jsc.sc().cancelJobGroup(group, reason)


def _set_query_log_level(spark: SparkSession, level: str) -> None:
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    query = f"{_STREAMING}.runtime.MicroBatchExecution"
    log4j.core.config.Configurator.setLevel(query, getattr(log4j.Level, level))


def _is_no_stop(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], Stopped)


class JvmDied(Exception):
    """Spark's JVM is gone. Only a new process can start a new one."""


class Jvm:
    """The process that Spark's driver runs in."""

    def __init__(self, spark: SparkSession) -> None:
        gateway = spark.sparkContext._gateway
        if gateway is None:
            raise RouteError(
                "PEN-ENG-003", "Spark has no gateway.", "Run Penstock as the driver, not inside another one."
            )
        self._process: subprocess.Popen[bytes] = gateway.proc
        self._view = gateway.jvm

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ping(self) -> None:
        """Returns when the JVM has answered. One that hangs, or was stopped, does not answer."""
        self._view.java.lang.System.nanoTime()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def check(self) -> None:
        """Raises ``JvmDied`` if the JVM is gone: routes would retry in vain."""
        if not self.alive:
            raise JvmDied(f"Spark's JVM (pid {self.pid}) ended with {self._process.returncode}")


def _merged_settings(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Theirs override ours. JVM options are appended to ours: without those it would use Spark's own logging."""
    both = {**ours, **theirs}
    if _JVM_OPTIONS in theirs:
        both[_JVM_OPTIONS] = f"{ours[_JVM_OPTIONS]} {theirs[_JVM_OPTIONS]}"
    return both


def _access_settings(master: str) -> dict[str, str]:
    """Settings for who may talk to the driver, and who may read its files."""
    # Equal to this process' umask: Hadoop's file systems use their own.
    mask = os.umask(0o077)
    os.umask(mask)
    modes = {"spark.hadoop.fs.permissions.umask-mode": f"{mask:03o}"}
    if not master.startswith("local"):
        return modes  # the config must set the cluster's own secret
    return {**modes, "spark.authenticate": "true", "spark.authenticate.secret": secrets.token_hex(32)}


def _settings(scratch: Path) -> dict[str, str]:
    cores = str(os.cpu_count() or 1)
    return {
        # Nothing of Spark listens beyond this machine unless the config says so.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": f"(?i){SECRET_NAME.pattern}",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        # Routes share the cores; a large batch of one must not queue up before the small ones of another.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.shuffle.partitions": cores,
        "spark.default.parallelism": cores,
        # A Python process that starts slowly on a busy machine is not lost.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "penstock.engine.spark.worker_daemon",
        # Spark's default checkpoint writer forks processes for every small file; ours needs one driver per
        # checkpoint, which the engine's lock gives.
        "spark.sql.streaming.checkpointFileManagerClass": (
            f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # Driver and executor are one process, so a timeout is no use; a clock that is set forward would trigger it.
        "spark.storage.blockManagerHeartbeatTimeoutMs": "100d",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.streaming.numRecentProgressUpdates": "2",
        # The ledger knows the delivered batches; Spark need not keep their metrics.
        "spark.sql.ui.retainedExecutions": "1",
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        _JVM_OPTIONS: f"-Dlog4j2.configurationFile=file:{_LOGGING}",
    }
