"""Spark's master and its common settings, checked with the config: Spark itself would only print a stack trace."""

from __future__ import annotations

import re
from collections.abc import Mapping

_MASTER = re.compile(
    r"local|local\[(?:\*|[1-9]\d*)(?:,\s*[1-9]\d*)?\]|local-cluster\[\d+,\d+,\d+\]|yarn|(?:spark|k8s)://\S+"
)
_MEMORY = re.compile(r"[1-9]\d*[kmgtp]b?", re.IGNORECASE)
_NUMBER = re.compile(r"[1-9]\d*")
_TRUTH = re.compile(r"true|false", re.IGNORECASE)
_MEMORIES = frozenset(
    f"spark.{name}"
    for name in ("driver.memory", "executor.memory", "driver.maxResultSize", "executor.pyspark.memory",
                 "driver.memoryOverhead", "executor.memoryOverhead")
)  # fmt: skip
_NUMBERS = frozenset(
    f"spark.{name}"
    for name in ("driver.cores", "executor.cores", "executor.instances", "cores.max", "task.cpus", "task.maxFailures",
                 "default.parallelism", "sql.shuffle.partitions", "sql.streaming.minBatchesToRetain")
)  # fmt: skip
_LEAST_DRIVER = 512 << 20
_UNITS = {unit: 1 << (10 * power) for power, unit in enumerate("kmgtp", 1)}


def checked_master(master: str) -> str:
    if _MASTER.fullmatch(master) is None:
        raise ValueError(f"'{master}' is no master of Spark; write local[*], local[2] or spark://host:7077")
    return master


def checked_settings(settings: Mapping[str, str]) -> dict[str, str]:
    for key, value in settings.items():
        if not key.startswith("spark."):
            raise ValueError(f"'{key}' is no setting of Spark: they begin with spark.")
        if key in _MEMORIES and not _is_memory(key, value):
            raise ValueError(f"{key} is an amount of memory such as 512m or 4g")
        if key in _NUMBERS and _NUMBER.fullmatch(value) is None:
            raise ValueError(f"{key} is a whole number from 1 on")
        if key.endswith(".enabled") and _TRUTH.fullmatch(value) is None:
            raise ValueError(f"{key} is true or false")
        if key == "spark.driver.memory" and _bytes(value) < _LEAST_DRIVER:
            raise ValueError(f"{key} is at least 512m: Spark does not start with less")
    return dict(settings)


def _is_memory(key: str, value: str) -> bool:
    """Overheads may be plain numbers of MiB, and the size of results without a limit."""
    plain = key.endswith("Overhead") and _NUMBER.fullmatch(value)
    unlimited = key == "spark.driver.maxResultSize" and value == "0"
    return bool(_MEMORY.fullmatch(value) or plain or unlimited)


def _bytes(text: str) -> int:
    bare = text.lower().removesuffix("b")
    return int(bare[:-1]) * _UNITS[bare[-1]]
