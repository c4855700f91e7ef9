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

from penstock.engine.delivery.batch_protocol import Stopped
from penstock.engine.spark.jvm import start_jvm
from penstock.errors import RouteError
from penstock.redaction import SECRET_NAME, learn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGING = Path(__file__).with_name("log4j2.properties")
_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_STREAMING = "org.apache.spark.sql.execution.streaming"


def slots(master: str, cores: int, routes: int, tasks: int) -> str:
    """The master, with so many places for tasks that two routes whose tasks all hang leave places for the others:
    a route runs one batch at a time, in at most ``tasks`` tasks or as many as there are cores. Only a local master is
    ours to choose, and ``local[4]`` means four cores."""
    found = re.fullmatch(r"local\[(\*|\d+)\]", master)
    if found is None:
        return master
    wanted = cores if found[1] == "*" else int(found[1])
    return f"local[{wanted if routes < 2 else max(wanted, tasks) * min(routes, 3)}]"


def build_session(name: str, master: str, scratch: Path, extra: Mapping[str, str]) -> SparkSession:
    """Start Spark, or take the session that runs. ``extra`` settings win over ours.

    ``scratch`` is of this driver alone: what a JVM that was killed left there goes.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._gateway is None:
        shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True, exist_ok=True)
    ours = {**_settings(scratch), **_access(master)}
    settings = {"spark.master": master, "spark.app.name": name, **_together(ours, extra)}
    learn(secret for key, secret in settings.items() if SECRET_NAME.search(key))
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with start_in_words():
        if SparkContext._gateway is None:
            traces = scratch.parent / "spark-traces.log"
            SparkContext._ensure_initialized(gateway=start_jvm(settings, scratch, traces))
        spark = builder.getOrCreate()
    # Importing Spark turns the chatter of its bridge on.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("py4j.clientserver").addFilter(_no_stop)
    return spark


@contextmanager
def start_in_words() -> Iterator[None]:
    """What goes wrong while Spark starts is a setting, or Java; it is said in a line, without Spark's traces."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise RouteError(
            "PEN-ENG-003",
            f"Spark did not start: {_cause(str(error))}",
            "Check `engine.master` and `engine.spark`, and what Java says above; `penstock doctor` looks at Java.",
        ) from None


def _cause(text: str) -> str:
    """Of what Spark says the innermost cause, in one line."""
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "..."))
    ]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    # Py4J puts a line of its own before the exception.
    said = causes[-1:] or [line for line in lines if not line.startswith("An error occurred while calling")][:1]
    found = re.sub(r"^: ", "", " ".join(said or lines[:1])) or "it does not say why"
    return f"{found[:500].rstrip('.')}."


def quiet_queries(spark: SparkSession) -> None:
    """A batch can leave Spark only by an error, and Spark tells errors with their traces. One that is our own stop is
    none."""
    _tell_of_queries(spark, "OFF")


def loud_queries(spark: SparkSession) -> None:
    """Hear of errors again, after a route has stopped alone and the engine goes on."""
    _tell_of_queries(spark, "ERROR")


def cancel_jobs(spark: SparkSession, group: str, reason: str) -> None:
    """End the jobs of a query, which Spark knows by its run."""
    spark.sparkContext._jsc.sc().cancelJobGroup(group, reason)


def _tell_of_queries(spark: SparkSession, level: str) -> None:
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    query = f"{_STREAMING}.runtime.MicroBatchExecution"
    log4j.core.config.Configurator.setLevel(query, getattr(log4j.Level, level))


def _no_stop(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], Stopped)


class JvmDied(Exception):
    """Spark's JVM is gone, and everything in it. Only a new process gets a new one."""


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

    def answer(self) -> None:
        """Returns when it has answered. One that hangs, or was stopped, does not."""
        self._view.java.lang.System.nanoTime()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def check(self) -> None:
        """Raises ``JvmDied`` if it is gone: routes would go on knocking at a door that nobody will open."""
        if not self.alive:
            raise JvmDied(f"Spark's JVM (pid {self.pid}) ended with {self._process.returncode}")


def _together(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Theirs win. Options of the JVM are put behind ours: without those it would log as Spark does by itself."""
    both = {**ours, **theirs}
    if _JVM_OPTIONS in theirs:
        both[_JVM_OPTIONS] = f"{ours[_JVM_OPTIONS]} {theirs[_JVM_OPTIONS]}"
    return both


def _access(master: str) -> dict[str, str]:
    """Who may talk to the driver, and who may read what it writes."""
    # As the process' own mask: Hadoop's file systems set modes by theirs.
    mask = os.umask(0o077)
    os.umask(mask)
    modes = {"spark.hadoop.fs.permissions.umask-mode": f"{mask:03o}"}
    if not master.startswith("local"):
        return modes  # the cluster's own secret is for the config to say
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
        # A Python process that starts on a busy machine is slow, not lost.
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
        # Driver and executor are one process, which cannot lose sight of itself; a clock that is set forward could.
        "spark.storage.blockManagerHeartbeatTimeoutMs": "100d",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.streaming.numRecentProgressUpdates": "2",
        # Batches that the engine has delivered are known to the ledger; Spark need not keep their metrics.
        "spark.sql.ui.retainedExecutions": "1",
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        _JVM_OPTIONS: f"-Dlog4j2.configurationFile=file:{_LOGGING}",
    }
