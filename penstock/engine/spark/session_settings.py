"""The settings of the Spark session that a pipeline of micro-batches wants. Imports nothing of Spark."""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path

from penstock.config.pipeline_config import PipelineConfig
from penstock.engine.spark.jvm_command import JAVA_OPTIONS
from penstock.redaction import SECRET_NAME, add_secrets
from penstock.registry import Kind, component

STREAMING = "org.apache.spark.sql.execution.streaming"
_LOGGING = Path(__file__).with_name("log4j2.properties")


def engine_settings(config: PipelineConfig, scratch: Path) -> dict[str, str]:
    master = master_with_slots(config.engine.master, os.cpu_count() or 1, len(config.routes), _max_tasks(config))
    return session_settings(config.name, master, scratch, config.engine.spark, _only_arrow(config))


def session_settings(
    name: str, master: str, scratch: Path, extra: Mapping[str, str], only_arrow: bool = False
) -> dict[str, str]:
    """``extra`` settings override ours. ``scratch`` is for what Spark spills. With ``only_arrow`` no record passes
    through the JVM: it need not spend its first minutes on optimising its code."""
    ours = {**_settings(scratch), **_access_settings(master)}
    if only_arrow:
        ours[JAVA_OPTIONS] += " -XX:TieredStopAtLevel=1"
    settings = {"spark.master": master, "spark.app.name": name, **_merged_settings(ours, extra)}
    add_secrets(secret for key, secret in settings.items() if SECRET_NAME.search(key))
    return settings


def _only_arrow(config: PipelineConfig) -> bool:
    """Whether all steps are ours: those work on Arrow, in Python."""
    names = {name for route in config.routes.values() for name, _ in route.step_configs}
    return all(component(Kind.STEP, name).implementation.startswith("penstock.") for name in names)


def _max_tasks(config: PipelineConfig) -> int:
    """How many tasks a batch may have: one per worker of a route's sources, and its replays."""
    sources, routes = config.sources, config.routes.values()
    return 1 + max((sum(sources[name].partitions for name in route.from_) for route in routes), default=0)


def master_with_slots(master: str, cores: int, routes: int, tasks: int) -> str:
    """The master, with enough task slots that two routes whose tasks all hang leave slots for the others: a route runs
    one batch at a time, in at most ``tasks`` tasks or one per core. Only a local master is changed, and ``local[4]``
    means four cores."""
    found = re.fullmatch(r"local\[(\*|\d+)\]", master)
    if found is None:
        return master
    wanted = cores if found[1] == "*" else int(found[1])
    return f"local[{wanted if routes < 2 else max(wanted, tasks) * min(routes, 3)}]"


def _merged_settings(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Theirs override ours. JVM options are appended to ours: without those it would use Spark's own logging."""
    both = {**ours, **theirs}
    if JAVA_OPTIONS in theirs:
        both[JAVA_OPTIONS] = f"{ours[JAVA_OPTIONS]} {theirs[JAVA_OPTIONS]}"
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
            f"{STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.stateStore.providerClass": f"{STREAMING}.state.RocksDBStateStoreProvider",
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
        # What the JVM unpacks goes there too: a JVM that is killed does not remove it, the next start does.
        JAVA_OPTIONS: shlex.join([f"-Dlog4j2.configurationFile=file:{_LOGGING}", f"-Djava.io.tmpdir={scratch}"]),
    }
