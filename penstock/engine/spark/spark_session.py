"""The Spark session, its errors, and the process that it runs in."""

from __future__ import annotations

import logging
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from penstock.engine.delivery.batch_writer import Stopped
from penstock.engine.spark.jvm import JvmDied, StartingJvm
from penstock.engine.spark.session_settings import STREAMING
from penstock.errors import RouteError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def build_session(settings: Mapping[str, str], jvm: StartingJvm | None) -> SparkSession:
    """Build a session in the JVM that was started for it; without one, return the session of this process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from penstock.engine.spark.numpy_converters import narrow_numpy_converters

    narrow_numpy_converters()
    mute_gateway()
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with explain_start_errors():
        if jvm is not None:
            SparkContext._ensure_initialized(gateway=jvm.connect())
        spark = builder.getOrCreate()
        # Built with the first query, and refused then: a route would try again and again.
        spark._jsparkSession.sessionState()
    return spark


def mute_gateway() -> None:
    """Let Spark's gateway log no traces of a JVM that ends while it is asked: the engine notices that by itself.
    Importing Spark turns them on; some go to the gateway's own loggers, some to the root."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("py4j.clientserver").addFilter(_is_no_stop)
    logging.getLogger().addFilter(_is_not_of_gateway)


def _is_not_of_gateway(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def explain_start_errors() -> Iterator[None]:
    """Turns errors at Spark's start, which come from a setting or from Java, into one line without stack traces. Raises
    ``JvmDied`` for a JVM that is gone: killed, or without room for its files."""
    from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JNetworkError, ConnectionError):
        raise JvmDied("Spark's JVM ended while Spark started; why is in its output above") from None
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


def mute_query_errors(spark: SparkSession, route: str) -> None:
    """Do not log query errors: a batch can leave Spark only by raising, Spark logs that with its trace, and our own
    stop is not an error."""
    with _MUTING:
        _muted.setdefault(spark, set()).add(route)
        _set_query_log_level(spark, "OFF")


def unmute_query_errors(spark: SparkSession, route: str) -> None:
    """Log query errors again, after one route has stopped and the engine goes on, unless another one is stopping."""
    with _MUTING:
        muted = _muted.setdefault(spark, set())
        muted.discard(route)
        if not muted:
            _set_query_log_level(spark, "ERROR")


_MUTING = threading.Lock()
_muted: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
"""The routes whose queries are being stopped. Spark has one log for all."""


def cancel_jobs(spark: SparkSession, group: str, reason: str) -> None:
    """Cancel the jobs of a query; ``group`` is its run id."""
    spark.sparkContext._jsc.sc().cancelJobGroup(group, reason)


def _set_query_log_level(spark: SparkSession, level: str) -> None:
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    query = f"{STREAMING}.runtime.MicroBatchExecution"
    log4j.core.config.Configurator.setLevel(query, getattr(log4j.Level, level))


def _is_no_stop(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], Stopped)


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
