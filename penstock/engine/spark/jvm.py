"""Starting Spark's JVM so that nothing of its settings shows: not on a command line, not in what it says.

PySpark would put every setting on the command line, where ``ps`` shows them to everybody on the machine. They go into a
file instead that only this user can read, and which is gone when the JVM is up. What the JVM and its Python workers say
comes through this process, which takes the config's secrets and the frames of traces out of it.
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

from penstock.engine.spark.jvm_output import Sieve
from penstock.redaction import redacted

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_PYTHON_PATH = "PYTHONPATH"
_WORKER_PATH = Path(__file__).with_name("worker_path")
"""Holds the module that the Python processes of this JVM begin with."""


def start_jvm(settings: Mapping[str, str], folder: Path, traces: Path) -> JavaGateway:
    """The bridge to a new JVM with these settings. ``folder`` is private, and of this driver alone. The frames of what
    the JVM tells with a trace go to ``traces``."""
    from pyspark.java_gateway import launch_gateway

    options, properties = folder / "java.options", folder / "spark.properties"
    said, say = os.pipe()
    try:
        # These would be on the JVM's command line even so; a file of options is not.
        _write(options, "".join(f"{_quoted(option)}\n" for option in shlex.split(settings.get(JAVA_OPTIONS, ""))))
        kept = {**settings, JAVA_OPTIONS: shlex.quote(f"@{options}")}
        _write(properties, "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in kept.items()))
        given = f"--properties-file {shlex.quote(str(properties))}"
        theirs = os.environ.get(_SUBMIT_ARGUMENTS, "pyspark-shell")
        paths = [str(_WORKER_PATH), os.environ.get(_PYTHON_PATH, "")]
        for_jvm = {_SUBMIT_ARGUMENTS: f"{given} {theirs}", _PYTHON_PATH: os.pathsep.join(filter(None, paths))}
        with _environment(for_jvm):
            return launch_gateway(popen_kwargs={"stdout": say, "stderr": say})  # type: ignore[no-untyped-call]
    finally:
        os.close(say)
        threading.Thread(target=pass_on, args=(said, Sieve(traces)), name="jvm-says", daemon=True).start()
        options.unlink(missing_ok=True)
        properties.unlink(missing_ok=True)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """What processes find in their environment that are started meanwhile."""
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


def pass_on(said: int, sieve: Sieve | None = None) -> None:
    """Repeat what comes through a pipe on standard error, without the config's secrets and what the sieve holds back,
    until it is closed."""
    with os.fdopen(said, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            # At the end of this process its own outputs may be closed before the JVM is silent.
            with suppress(ValueError, OSError):
                clean = redacted(line)
                sys.stderr.write(clean if sieve is None else sieve.shown(clean))
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
