"""The command of Spark's JVM, and its options.

Spark's script starts a JVM of its own only to find the command. Where nothing was set up by hand that command is always
the same, and remembered.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.engine.spark.start_cache import spark_home

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_MEMORY = "spark.driver.memory"
_SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_FOR_LAUNCHER = ("spark.driver.defaultJavaOptions", "spark.driver.extraClassPath", "spark.driver.extraLibraryPath")
_HARMLESS = frozenset(
    {
        "SPARK_LOCAL_IP",
        "SPARK_LOCAL_DIRS",
        "SPARK_USER",
        "SPARK_AUTH_SOCKET_TIMEOUT",
        "SPARK_BUFFER_SIZE",
        _SUBMIT_OPTIONS,
    }
)
"""Variables that the launcher passes over, that PySpark sets itself, or that are heeded here as well."""
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_JAVA_READS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


def jvm_options(theirs: Sequence[str], archive: Path | None) -> list[str]:
    """The options for a JVM that starts fast, then ``theirs``, which override them. It carries reports of tasks: a
    collector without threads of its own is enough for them."""
    known = " ".join([*theirs, *(os.environ.get(name, "") for name in (_SUBMIT_OPTIONS, *_JAVA_READS))])
    # A JVM that is told two collectors does not start.
    ours = [] if _COLLECTOR.search(known) else ["-XX:+UseSerialGC"]
    if archive is not None:
        # An archive that does not fit is passed over, and not worth a word.
        ours += ["-Xlog:cds=off", "-Xlog:cds+dynamic=off", f"-XX:SharedArchiveFile={archive}"]
    return [*ours, *theirs]


def is_set_up_by_hand(settings: Mapping[str, str]) -> bool:
    """Whether only Spark's own scripts know how this Spark is started, or it runs elsewhere."""
    names = (name for name in os.environ if name.startswith(("SPARK_", "HADOOP_", "YARN_")) and name not in _HARMLESS)
    return (
        any(names)
        or _SUBMIT_ARGUMENTS in os.environ
        or (spark_home() / "conf").exists()
        or not settings["spark.master"].startswith("local")
        or any(name in settings for name in _FOR_LAUNCHER)
    )


def script_command(properties: Path) -> list[str]:
    """Spark's own script; ``properties`` is the file that holds the settings."""
    home = os.environ.get("SPARK_HOME", str(spark_home()))
    theirs = shlex.split(os.environ.get(_SUBMIT_ARGUMENTS, "pyspark-shell"))
    return [str(Path(home) / "bin" / "spark-submit"), "--properties-file", str(properties), *theirs]


def direct_command(found: Sequence[str], settings: Mapping[str, str], options: Path, properties: Path) -> list[str]:
    """The JVM itself; ``found`` is what the launcher told. The files hold what a command line would show to all."""
    java, *words, main = found
    submit_options = shlex.split(os.environ.get(_SUBMIT_OPTIONS, ""))
    heap = f"-Xmx{settings[_MEMORY]}"
    return [
        java, *words, heap, f"@{options}", *submit_options, main, "--properties-file", str(properties), "pyspark-shell"
    ]  # fmt: skip
