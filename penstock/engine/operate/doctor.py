"""Checks everything that a pipeline needs: Python, Java, config, folders, ports, log, ledger, targets.

Each check ends in a finding, never in an exception, and says how to fix what it found. It starts no Spark, and locks
nothing that a running pipeline needs.
"""

from __future__ import annotations

import http.client
import os
import platform
import re
import shutil
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.loading import load
from penstock.config.pipeline_config import PipelineConfig
from penstock.config.problems import ConfigError
from penstock.engine.file_permissions import is_open
from penstock.engine.layout import Layout
from penstock.engine.processes.presence import describe_engine, engine_pid, engine_silence, stalled_routes
from penstock.engine.spark.start_cache import find_java, find_start_cache
from penstock.errors import PenstockError, SourceUnavailable, TransientError
from penstock.redaction import redacted

if TYPE_CHECKING:
    from penstock.engine.pipeline import Pipeline
    from penstock.log.local_log import LocalLog

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
LITTLE_SPACE = 2**30
TOO_LITTLE_SPACE = 64 * 2**20
UNAVAILABLE = "Start it, or fix its address or password in the config. A pipeline that runs tries again by itself."


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    subject: str
    verdict: Verdict
    found: str
    fix: str = ""


def run_checks(path: Path) -> Iterator[Finding]:
    """Run all checks; yields each finding at once. Checks that need a config are left out without one."""
    yield check_python()
    yield check_java()
    yield check_start()
    try:
        config = load(path)
    except ConfigError as error:
        for problem in error.problems:
            yield Finding("config", Verdict.FAIL, str(problem), "Then run: penstock validate")
        return
    yield Finding("config", Verdict.OK, f"{path} is valid, name {config.name}")
    yield check_space(config.data_dir)
    yield from check_privacy(config.data_dir, config.file_mask)
    yield _engine(config)
    for name, source in config.sources.items():
        if source.listening is not None:
            runs = engine_pid(Layout(config.data_dir)) is not None
            yield check_address(f"source {name}", *source.listening, runs)
        yield from _run_check(f"source {name}", _check_source(config, name))
    yield from _run_check("log", _check_log(config))
    yield from _run_check("ledger", _check_ledger(config))
    for route in config.routes:
        yield from _run_check(f"route {route}", _check_destination(config, route))


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> Finding:
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if version < OLDEST_PYTHON:
        return Finding("python", Verdict.FAIL, found, "Penstock needs Python 3.11 or newer.")
    return Finding("python", Verdict.OK, found)


def check_java() -> Finding:
    java = find_java()
    fix = f"Install Java {OLDEST_JAVA} or newer, or point JAVA_HOME at one."
    if java is None:
        return Finding("java", Verdict.FAIL, "no java on the PATH, and JAVA_HOME is not set", fix)
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("java", Verdict.FAIL, f"{java} does not run: {error}", fix)
    version = java_version(ran.stderr + ran.stdout)
    if version is None:
        return Finding("java", Verdict.FAIL, f"{java} does not say its version", fix)
    if version < OLDEST_JAVA:
        return Finding("java", Verdict.FAIL, f"{java} is Java {version}", fix)
    return Finding("java", Verdict.OK, f"Java {version}, {java}")


def check_start() -> Finding:
    """Whether what makes Spark start fast is there. Without it Spark starts, too."""
    cache = find_start_cache()
    if cache is not None and cache.command() is not None:
        return Finding("start", Verdict.OK, f"Spark starts with the classes in {cache.folder}")
    fix = "Make its class archive, once: python -m penstock.engine.spark.start_cache"
    return Finding("start", Verdict.WARN, "Spark takes three times as long to start as it could", fix)


def java_version(text: str) -> int | None:
    """The major version in the output of ``java -version``; old ones call 8 "1.8"."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


def check_space(folder: Path) -> Finding:
    """Whether the folder can be written, or made, and how much room is left there."""
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        fix = "Give this user permission to write there, or set another `data_dir`."
        return Finding("data_dir", Verdict.FAIL, f"{place} cannot be written", fix)
    free = shutil.disk_usage(place).free
    found = f"{folder}{'' if folder.exists() else ' (will be made)'}, {free / 2**30:.1f} GiB free"
    if free < LITTLE_SPACE:
        verdict = Verdict.FAIL if free < TOO_LITTLE_SPACE else Verdict.WARN
        return Finding("data_dir", verdict, found, "Make room, or lower `log.retention`.")
    return Finding("data_dir", Verdict.OK, found)


def check_privacy(folder: Path, mask: int) -> Iterator[Finding]:
    """A folder that others can look into."""
    if is_open(folder, mask):
        mode = stat.S_IMODE(folder.stat().st_mode)
        fix = f"The next `penstock run` closes it if it is this user's; else: chmod go-rwx {folder}, or set `umask`."
        yield Finding("data_dir", Verdict.WARN, f"{folder} is open to others (mode {mode:04o})", fix)


def check_address(subject: str, listen: str, tls: bool = False, runs: bool = True) -> Finding:
    """A listen address must be free, or answer as a collector does: ours, if our engine ``runs``."""
    host, _, port_text = listen.rpartition(":")
    host, port = host.strip("[]"), int(port_text)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
        return Finding(subject, Verdict.OK, f"{listen} is free")
    except OSError as error:
        reason = error.strerror or str(error)
    if _is_healthy({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port, tls):
        if runs:
            return Finding(subject, Verdict.OK, f"{listen} answers /healthz: a collector runs there")
        return Finding(
            subject,
            Verdict.WARN,
            f"{listen} answers /healthz, and this pipeline's engine does not run: the collector may be another's",
            f"If it is, stop the pipeline that has port {port}, or change `listen`.",
        )
    return Finding(
        subject,
        Verdict.FAIL,
        f"{listen} cannot be used ({reason}), and what is there does not answer /healthz",
        f"Stop the process that has port {port}, or change `listen`.",
    )


def _is_healthy(host: str, port: int, tls: bool) -> bool:
    connection: http.client.HTTPConnection
    if tls:
        # Clients check the certificate; here it only matters who has the port.
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(host, port, timeout=3, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=3)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _engine(config: PipelineConfig) -> Finding:
    layout = Layout(config.data_dir)
    pid = engine_pid(layout)
    if (silence := engine_silence(layout, pid)) is not None:
        fix = "It is started again by itself soon; look for the reason in its log, and at the load of the machine."
        return Finding("engine", Verdict.FAIL, describe_engine(pid, silence), fix)
    if still := stalled_routes(layout, pid):
        hanging = ", ".join(f"route {name} for {seconds:.0f} s" for name, seconds in still.items())
        fix = "A step that takes longer than `step_timeout` is cut off by itself, and its record fails."
        return Finding("engine", Verdict.WARN, f"runs, pid {pid}; tasks have not moved: {hanging}", fix)
    return Finding("engine", Verdict.OK, "does not run" if pid is None else f"runs, pid {pid}")


def _check_source(config: PipelineConfig, name: str) -> Iterator[Finding]:
    from penstock.registry import Kind, component
    from penstock.sources.contract import SourceContext

    source = config.sources[name]
    layout = Layout(config.data_dir)
    context = SourceContext(name, layout.log, config.log.model_dump_json(), layout.source_state(name))
    found = component(Kind.SOURCE, source.type).implementation_class()(source, context).check()
    if found is not None:
        yield Finding(f"source {name}", Verdict.OK, f"{source.type}: {found}")


def _check_log(config: PipelineConfig) -> Iterator[Finding]:
    from penstock.log.local_log import LocalLog

    log = LocalLog(Layout(config.data_dir).log, config.log)
    owners = log.partitions()
    if not owners:
        yield Finding("log", Verdict.OK, "empty: made at the first run")
    for partition, owner in owners.items():
        yield from _run_check(f"log {partition}", _check_partition(log, partition, owner.source))


def _check_partition(log: LocalLog, partition: int, source: str) -> Iterator[Finding]:
    from penstock.log.format.head import read_head
    from penstock.log.format.log_files import segment_path

    bounds = log.bounds(partition)
    # Reading the newest record shows that the last frame is whole; reading all would take too long.
    for _ in log.read(partition, max(bounds.oldest, bounds.end - 1), bounds.end):
        pass
    folder = log.directory / str(partition)
    head = read_head(folder)
    behind = 0 if head is None else segment_path(folder, head.segment).stat().st_size - head.position
    held = f"{source}: {bounds.oldest}..{bounds.end - 1}" if bounds.end > bounds.oldest else f"{source}: empty"
    if behind > 0:
        yield Finding(
            f"log {partition}",
            Verdict.WARN,
            f"{held}; {behind} bytes after the last finished append",
            "An append under way, or one that a crash cut off: the next start repairs it and says so.",
        )
    else:
        yield Finding(f"log {partition}", Verdict.OK, held)


def _check_ledger(config: PipelineConfig) -> Iterator[Finding]:
    from penstock.engine.delivery.log_gaps import gaps
    from penstock.engine.ledger import RouteState
    from penstock.engine.pipeline import Pipeline
    from penstock.log.local_log import LocalLog

    layout = Layout(config.data_dir)
    if config.ledger.url is None and not layout.ledger.exists():
        held = LocalLog(layout.log, config.log).holds.get()
        if any(offset for offsets in held.values() for offset in offsets.values()):
            yield Finding(
                "ledger",
                Verdict.FAIL,
                f"there is none, but {', '.join(held)} delivered from this log before",
                "Put it back. Or let each route continue after what its destination has: penstock offset adopt ROUTE",
            )
        else:
            yield Finding("ledger", Verdict.OK, "none yet: made at the first run")
        return
    pipeline = Pipeline.open(config)
    try:
        known = pipeline.ledger.routes()
        unbalanced = [route for route in known if not pipeline.ledger.totals(route).adds_up]
        if unbalanced:
            fix = "Keep the ledger as it is and report this: the accounting must always add up."
            yield Finding("ledger", Verdict.FAIL, f"the ledger does not balance: {', '.join(unbalanced)}", fix)
        else:
            yield Finding("ledger", Verdict.OK, f"opens; the ledger balances for {', '.join(known) or 'no route yet'}")
        gone = [route for route in known if route not in config.routes]
        if gone:
            fix = (
                "What they have not read stays in the log. If one was renamed: penstock offset adopt OLD NEW. If it is"
                " not to come back: penstock offset drop OLD"
            )
            yield Finding("ledger", Verdict.WARN, f"has routes that the config lacks: {', '.join(gone)}", fix)
        for route in gone:
            yield from _check_waiting(
                pipeline,
                route,
                "The log is kept for them. They are loaded once the config has the route again, or another takes over"
                f" from it: penstock offset adopt {route} NEW. To give them up: penstock offset drop {route}",
            )
        for route in config.routes:
            found = list(_run_check(f"route {route}", _check_history(pipeline, route)))
            yield from found
            activity = pipeline.ledger.activity(route)
            if activity is not None and activity.state is RouteState.CRASHED:
                fix = "An engine that runs starts it again and again: see what `penstock run` says of it."
                yield Finding(f"route {route}", Verdict.FAIL, f"it crashed: {activity.message}", fix)
            if activity is not None and activity.state is RouteState.RETRYING:
                fix = "A pipeline that runs tries again by itself; nothing is lost meanwhile."
                yield Finding(f"route {route}", Verdict.WARN, f"its last try failed: {activity.message}", fix)
            if activity is not None and activity.state is RouteState.HALTED and not found:
                yield Finding(f"route {route}", Verdict.WARN, activity.message)
            yield from _check_waiting(
                pipeline,
                route,
                "They are loaded once it takes rows; nothing is lost meanwhile, and the log is kept for them.",
            )
            for gap in gaps(pipeline.log, pipeline.ledger, route, pipeline.sources_of(route)):
                yield Finding(f"route {route}", Verdict.FAIL, gap.what, gap.fix)
    finally:
        pipeline.ledger.close()


def _check_waiting(pipeline: Pipeline, route: str, fix: str) -> Iterator[Finding]:
    for table, waiting in pipeline.ledger.waiting_tables(route).items():
        what = f"table {table} is unavailable, {waiting.rows} rows wait for it: {waiting.reason}"
        yield Finding(f"route {route}", Verdict.WARN, what, fix)


def _check_history(pipeline: Pipeline, route: str) -> Iterator[Finding]:
    """Whether the route's history fits what was delivered before. Another check reports one that is unavailable."""
    from penstock.engine.history.takeover import check_history

    check_history(pipeline, route)
    yield from ()


def _check_destination(config: PipelineConfig, route: str) -> Iterator[Finding]:
    from penstock.registry import Kind, component

    target = config.routes[route].to
    destination = component(Kind.DESTINATION, target.type).implementation_class()(target)
    yield Finding(f"route {route}", Verdict.OK, f"{target.type}: {destination.check()}")


def _run_check(subject: str, check: Iterator[Finding]) -> Iterator[Finding]:
    """Run a check and yield its findings; an error that it raises becomes one."""
    try:
        yield from check
    except (SourceUnavailable, TransientError) as error:
        yield Finding(subject, Verdict.FAIL, f"{error.code}: {error.what}", UNAVAILABLE)
    except PenstockError as error:
        yield Finding(subject, Verdict.FAIL, f"{error.code}: {error.what}", error.fix)
    except Exception as error:
        yield Finding(subject, Verdict.FAIL, redacted(f"{type(error).__name__}: {error}"))
