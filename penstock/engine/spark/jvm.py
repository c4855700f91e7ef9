"""Starts Spark's JVM without exposing its settings on a command line or in its output.

PySpark would put every setting on the command line, where ``ps`` shows them to everybody on the machine. They go into a
file instead, which only this user can read and which is removed when the JVM is up. The output of the JVM and its
Python workers passes through this process, which removes the config's secrets and the frames of stack traces.

The JVM starts while this process goes on: it imports nothing of PySpark until it has to connect.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.spark.fork_server import worker_path
from penstock.engine.spark.jvm_command import (
    JAVA_OPTIONS,
    direct_command,
    is_set_up_by_hand,
    jvm_options,
    script_command,
)
from penstock.engine.spark.jvm_output import OutputFilter
from penstock.engine.spark.start_cache import ask_launcher, find_start_cache
from penstock.redaction import redacted

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]

_POLL = 0.01
_LAST_WORDS = 10.0
"""Seconds for the rest of what a JVM said that has ended."""


class JvmDied(Exception):
    """Spark's JVM is gone, or of no use. Only a new process can start a new one."""


def has_jvm() -> bool:
    """Whether this process has a JVM of Spark already."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._gateway is not None


def empty_scratch(folder: Path) -> None:
    """Remove what a killed JVM left there. The folder belongs to this driver alone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


class StartingJvm:
    """A JVM of Spark that was started. ``folder`` is private to this driver; the frames of the JVM's stack traces go to
    ``traces``; its Python processes find ``environment``."""

    def __init__(
        self, settings: Mapping[str, str], folder: Path, traces: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        options, properties, self._address = folder / "java.options", folder / "spark.properties", folder / "gateway"
        self._files = (options, properties, self._address)
        by_hand = is_set_up_by_hand(settings)
        cache = None if by_hand else find_start_cache()
        remembered = None if cache is None else cache.command()
        self.lacks_archive = not by_hand and remembered is None
        theirs = shlex.split(settings.get(JAVA_OPTIONS, ""))
        for_java = jvm_options(theirs, None if cache is None or remembered is None else cache.archive)
        _write(options, "".join(f"{_quoted(option)}\n" for option in for_java))
        kept = {**settings, JAVA_OPTIONS: shlex.quote(f"@{options}")} if by_hand else settings
        _write(properties, "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in kept.items()))
        variables = {
            **os.environ,
            **(environment or {}),
            "PYTHONPATH": worker_path(),
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._address),
        }  # fmt: skip
        if by_hand:
            command = script_command(properties)
        else:
            # Each Python process of Spark would unpack and compile PySpark anew, from zips that are not there.
            variables["SPARK_HOME"] = str(folder)
            # Only used to ask, in a process of its own, for data sources of packages that are installed.
            variables["PYSPARK_DRIVER_PYTHON"] = str(folder / "none")
            command = direct_command(remembered or ask_launcher(folder), settings, options, properties)
        self._output, sink = os.pipe()
        try:
            self.process = subprocess.Popen(
                command, env=variables,
                # It ends with this pipe.
                stdin=subprocess.PIPE, stdout=sink, stderr=sink, preexec_fn=_ignore_interrupts,
            )  # fmt: skip
        finally:
            os.close(sink)
        self._traces = traces

    def connect(self) -> JavaGateway:
        """Wait until it is up, and return its gateway. Raises ``JvmDied`` if it could not read or write a file: there
        may be room for it later."""
        from pyspark.java_gateway import launch_gateway
        from pyspark.serializers import UTF8Deserializer, read_int

        output = OutputFilter(self._traces)
        relay = threading.Thread(target=relay_output, args=(self._output, output), name="jvm-logs")
        relay.daemon = True
        relay.start()
        try:
            while not self._address.exists():
                ended = self.process.poll() is not None
                if ended:
                    relay.join(_LAST_WORDS)
                if ended or output.main_error is not None:
                    raise _start_error(output.main_error)
                time.sleep(_POLL)
            with self._address.open("rb") as answer:
                port, secret = read_int(answer), UTF8Deserializer().loads(answer)  # type: ignore[no-untyped-call]
        finally:
            for path in self._files:
                path.unlink(missing_ok=True)
        os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), secret
        try:
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            # Processes that are started later need not know them.
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        gateway.proc = self.process
        return gateway

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _start_error(reason: str | None) -> Exception:
    from pyspark.errors import PySparkRuntimeError

    if reason is not None and reason.startswith(("java.io.", "java.nio.")):
        return JvmDied(f"Spark's JVM could not start: {reason}")
    return PySparkRuntimeError(reason, errorClass="JAVA_GATEWAY_EXITED", messageParameters={})


def _ignore_interrupts() -> None:
    """Ctrl-C is for the driver, which then stops its JVM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def relay_output(pipe: int, lines_filter: OutputFilter | None = None) -> None:
    """Copy a pipe to standard error until it is closed, without the config's secrets and what the filter holds
    back."""
    with os.fdopen(pipe, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            # When this process ends, its own outputs may be closed before the JVM is silent.
            with suppress(ValueError, OSError):
                clean = redacted(line)
                sys.stderr.write(clean if lines_filter is None else lines_filter.filter_line(clean))
                sys.stderr.flush()


def _write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _quoted(option: str) -> str:
    """As Java reads a file of options."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _escaped(text: str) -> str:
    """As Java reads a file of properties."""
    return "".join(f"\\u{ord(c):04x}" if c in "\\=:#! \t\f\r\n" else c for c in text)
