"""Appending to the log, every group on disk before the next: against SQLite, and against a bare write and sync."""

from __future__ import annotations

import itertools
import os
import sqlite3
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa

from bench.measure import Comparison, Contender, Goal, Role, Setting, by_turns, seconds_of
from bench.records import as_batch, as_entries, texts
from penstock.log.config import LogConfig
from penstock.log.format.frame import Body
from penstock.log.group_commit import Entry, GroupCommit
from penstock.log.local_log import LocalLog
from penstock.log.writer import PartitionWriter

RECORD_BYTES = 500
GROUP = 1000
ROUNDS = 5
IN_FLIGHT = 2
"""One group on its way to the disk and one waiting, as behind a busy collector."""
PREFETCH = 2
"""How many batches are prepared ahead of the disk."""
GOAL = 0.5


def run(setting: Setting) -> list[Comparison]:
    groups = setting.choose(full=100, quick=10)
    data = texts(groups * GROUP, RECORD_BYTES)
    chunks = [data[at : at + GROUP] for at in range(0, len(data), GROUP)]
    folders = (setting.folder / f"append-{number}" for number in itertools.count())
    sizes: dict[str, int] = {}

    def rate(name: str, folder: Path, seconds: float) -> float:
        sizes[name] = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        return len(data) / seconds

    batches = [as_batch(chunk) for chunk in chunks]
    entries = [as_entries(chunk) for chunk in chunks]

    def bare() -> float:
        folder = _made(next(folders))
        return rate("bare", folder, write_and_sync(folder / "file", chunks))

    def sqlite() -> float:
        folder = _made(next(folders))
        return rate("sqlite", folder, insert(folder / "queue.db", chunks))

    def writer(config: LogConfig) -> float:
        folder = next(folders)
        return rate(config.compression, folder, append(folder, batches, config))

    def group() -> float:
        folder = next(folders)
        return rate("lz4", folder, submit(folder, entries))

    figures = by_turns(
        [
            Contender(
                Role.US,
                "PartitionWriter.write of prepared Arrow batches, a frame and a sync each",
                partial(writer, LogConfig()),
            ),
            Contender(Role.US, "the same with compression: none", partial(writer, LogConfig(compression="none"))),
            Contender(Role.US, f"GroupCommit.submit of Python entries, {IN_FLIGHT} groups in flight", group),
            Contender(Role.PEER, "SQLite, WAL, synchronous=FULL, a transaction per group", sqlite),
            Contender(Role.LIMIT, "os.write + os.fdatasync per group", bare),
        ],
        ROUNDS,
        warm_up=1,
    )
    arrow, plain, python, *others = figures
    raw = len(data) * RECORD_BYTES
    on_disk = (
        f"{groups} groups of {GROUP:,} records of {RECORD_BYTES} bytes; on disk, as shares of these bytes: log "
        f"{sizes['lz4'] / raw:.0%} with lz4 and {sizes['none'] / raw:.0%} without, SQLite {sizes['sqlite'] / raw:.0%}"
    )
    results = []
    lines = (("log_append", arrow), ("log_append, uncompressed", plain), ("log_append, from Python", python))
    for name, us in lines:
        comparison = Comparison(name, "records/s", (us, *others))
        ratio = comparison.ratio or 0.0
        # What Python objects cost before they are a batch is shown, and is not the log's.
        goal = None if us is python else Goal(f">= {GOAL:.0%} of the limit", ratio >= GOAL)
        results.append(Comparison(name, "records/s", (us, *others), goal, (f"us = {us.name}", on_disk)))
    return results


def append(folder: Path, batches: list[pa.RecordBatch], config: LogConfig) -> float:
    with LocalLog(folder, config).writer("web") as writer:
        return seconds_of(lambda: append_all(writer, batches))


def append_all(writer: PartitionWriter, batches: list[pa.RecordBatch]) -> None:
    """Append the batches as sources do: the next ones are prepared while the disk works on the last."""
    with ThreadPoolExecutor(1) as preparing:
        prepared: deque[Future[Body | None]] = deque()
        for batch in batches:
            prepared.append(preparing.submit(writer.prepare, batch))
            if len(prepared) > PREFETCH:
                writer.write(prepared.popleft().result())
        while prepared:
            writer.write(prepared.popleft().result())


def submit(folder: Path, groups: list[list[Entry]]) -> float:
    room = threading.Semaphore(IN_FLIGHT)
    errors: list[Exception] = []

    def done(_: range | None, error: Exception | None) -> None:
        if error is not None:
            errors.append(error)
        room.release()

    with LocalLog(folder).writer("web") as writer:
        commits = GroupCommit(writer)

        def work() -> None:
            for group in groups:
                room.acquire()
                if not commits.submit(group, done):
                    raise RuntimeError("the log took no more")
            commits.close()

        seconds = seconds_of(work)
        if errors:
            raise errors[0]
        return seconds


def write_and_sync(path: Path, chunks: list[list[bytes]]) -> float:
    joined = [b"".join(chunk) for chunk in chunks]
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def work() -> None:
        for block in joined:
            os.write(fd, block)
            os.fdatasync(fd)

    try:
        return seconds_of(work)
    finally:
        os.close(fd)


def insert(path: Path, chunks: list[list[bytes]]) -> float:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE records (number INTEGER PRIMARY KEY, at INTEGER, data BLOB)")
    rows = [[(7, text) for text in chunk] for chunk in chunks]

    def work() -> None:
        for group in rows:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO records (at, data) VALUES (?, ?)", group)
            connection.execute("COMMIT")

    try:
        return seconds_of(work)
    finally:
        connection.close()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
