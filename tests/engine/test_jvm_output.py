"""What a person sees of Spark's JVM: what happened, and no traces."""

from __future__ import annotations

import logging
from pathlib import Path
from types import ModuleType

import pytest
from py4j import java_gateway

from penstock.engine.spark.jvm_output import OutputFilter
from penstock.engine.spark.spark_session import _cause, _is_not_of_gateway, mute_gateway

WRITTEN = """\
WARNING: Using incubator modules: jdk.incubator.vector
Setting default log level to "WARN".
Starting Streaming TransformWithStateInPandas Python worker.

Streaming TransformWithStateInPandas Python worker received parameters for UDF. State server port/path: 41201.
2026-11-16 03:08:55,400 ERROR spark: Error initializing SparkContext.
org.apache.spark.SparkException: Could not parse Master URL: 'locall[2]'
\tat org.apache.spark.SparkContext$.org$apache$spark$SparkContext$$createTaskScheduler(SparkContext.scala:3386)
\tat java.base/java.lang.Thread.run(Thread.java:840)
\tat org.apache.spark.api.java.JavaSparkContext.<init>(JavaSparkContext.scala:59)
Caused by: java.lang.IllegalStateException: no room
\t... 12 more
a line at the end (of it)
"""


def test_frames_of_traces_are_kept_aside_and_what_happened_is_shown(tmp_path: Path) -> None:
    traces = tmp_path / "traces.log"
    sieve = OutputFilter(traces)
    assert "".join(map(sieve.filter_line, WRITTEN.splitlines(keepends=True))).splitlines() == [
        "2026-11-16 03:08:55,400 ERROR spark: Error initializing SparkContext.",
        "org.apache.spark.SparkException: Could not parse Master URL: 'locall[2]'",
        f"  (traces are in {traces})",
        "Caused by: java.lang.IllegalStateException: no room",
        "a line at the end (of it)",
    ]
    assert traces.read_text().count("\n") == 4
    assert traces.stat().st_mode & 0o777 == 0o600


PYTHON = """\
Traceback (most recent call last):
  File "spark.zip/pyspark/util.py", line 847, in local_connect_and_auth
    sock.connect(sa)
    ~~~~~~~~~~~~^^^^
ConnectionRefusedError: [Errno 111] Connection refused

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
pyspark.errors.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket
 a line of its own
"""


def test_the_frames_of_python_traces_are_kept_aside_too(tmp_path: Path) -> None:
    traces = tmp_path / "traces.log"
    sieve = OutputFilter(traces)
    assert [line for line in map(sieve.filter_line, PYTHON.splitlines(keepends=True)) if line.strip()] == [
        f"  (traces are in {traces})\n",
        "ConnectionRefusedError: [Errno 111] Connection refused\n",
        "pyspark.errors.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket\n",
        " a line of its own\n",
    ]
    assert "sock.connect(sa)" in traces.read_text()


def test_traces_that_cannot_be_kept_stop_nothing(tmp_path: Path) -> None:
    sieve = OutputFilter(tmp_path / "nowhere" / "traces.log")
    assert [sieve.filter_line(line) for line in ("\tat a.b(C.java:1)\n", "what happened\n")][1] == "what happened\n"


def test_of_what_spark_says_the_innermost_cause_is_told() -> None:
    py4j = "An error occurred while calling None.X.\n: org.apache.spark.SparkException: Could not parse.\n\tat a.b(c)\n"
    assert _cause(py4j) == "org.apache.spark.SparkException: Could not parse."
    nested = (
        "Error while instantiating 'X':\n\tat a.b(c)\nCaused by: a.B: outer\n\tat a.b(c)\nCaused by: a.C: it is abc\n"
    )
    assert _cause(nested) == "a.C: it is abc."
    assert _cause("") == "it does not say why."


@pytest.mark.parametrize(("module", "shown"), [(java_gateway, False), (pytest, True)], ids=["gateway", "others"])
def test_what_the_gateway_logs_as_if_it_were_the_program_is_not_shown(
    module: ModuleType, shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    root = logging.getLogger()
    mute_gateway()
    try:
        path = str(module.__file__)
        root.handle(root.makeRecord("root", logging.ERROR, path, 1, "Exception while sending command.", (), None))
    finally:
        root.removeFilter(_is_not_of_gateway)
    assert ("Exception while sending command." in caplog.text) is shown
