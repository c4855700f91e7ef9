"""Starts Spark's JVM without exposing its settings on a command line or in its output.

PySpark would put every setting on the command line, where ``ps`` shows them to everybody on the machine. They go into a
file instead, which only this user can read and which is removed when the JVM is up. The output of the JVM and its
Python workers passes through this process, which removes the config's secrets and the frames of stack traces.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.spark.jvm_output import OutputFilter
from penstock.redaction import redacted

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_PYTHON_PATH = "PYTHONPATH"
_WORKER_PATH = Path(__file__).with_name("worker_path")
"""Holds the module that the Python processes of this JVM run first."""


def start_jvm(settings: Mapping[str, str], folder: Path, traces: Path) -> JavaGateway:
    """Start a JVM with these settings and return its gateway. ``folder`` is private to this driver. The frames of the
    JVM's stack traces go to ``traces``."""
    from pyspark.java_gateway import launch_gateway

    options, properties = folder / "java.options", folder / "spark.properties"
    output, sink = os.pipe()
    try:
        # These would still be on the JVM's command line; an options file is not.
        _write(options, "".join(f"{_quoted(option)}\n" for option in shlex.split(settings.get(JAVA_OPTIONS, ""))))
        kept = {**settings, JAVA_OPTIONS: shlex.quote(f"@{options}")}
        _write(properties, "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in kept.items()))
        given = f"--properties-file {shlex.quote(str(properties))}"
        theirs = os.environ.get(_SUBMIT_ARGUMENTS, "pyspark-shell")
        paths = [str(_WORKER_PATH), os.environ.get(_PYTHON_PATH, "")]
        for_jvm = {_SUBMIT_ARGUMENTS: f"{given} {theirs}", _PYTHON_PATH: os.pathsep.join(filter(None, paths))}
        with _environment(for_jvm):
            return launch_gateway(popen_kwargs={"stdout": sink, "stderr": sink})  # type: ignore[no-untyped-call]
    finally:
        os.close(sink)
        threading.Thread(target=relay_output, args=(output, OutputFilter(traces)), name="jvm-logs", daemon=True).start()
        options.unlink(missing_ok=True)
        properties.unlink(missing_ok=True)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Sets variables for processes that are started inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
    with suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _quoted(option: str) -> str:
    """As Java reads a file of options."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _escaped(text: str) -> str:
    """As Java reads a file of properties."""
    return "".join(f"\\u{ord(c):04x}" if c in "\\=:#! \t\f\r\n" else c for c in text)
