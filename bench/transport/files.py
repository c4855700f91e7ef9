"""An NDJSON file -> log -> NDJSON files, without a step and with three functions.

First the source reads the file into the log, in a process of its own, then ``penstock run --once`` takes it from there;
the seconds of both are added, without the starts of Python and the JVM. Every record is counted in the files that come
out. What a person waits for is told too: one ``penstock run --once`` from file to files, from the call to its end. Its
memory, and that of one with four times the documents, shows whether it grows with the input.

The peer is Spark's own stream from text file to text files (see ``spark_files``). The limit copies the file and syncs
it, which no transport can do without.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Event

from bench.measure import Comparison, Contender, Goal, Role, Setting, by_turns, ours, seconds_of
from bench.processes import SOURCE
from bench.records import short_texts
from bench.to_the_end import Delivered, Step, deliver, run_project, write_project
from bench.transport.spark_files import seconds_of_spark
from penstock.sources.contract import SourceContext
from penstock.sources.file.config import FileConfig
from penstock.sources.file.source import FileSource

DOCUMENT_BYTES = 110
DISTINCT = 100_000
BATCH = 500_000
CHUNK = 2**20
MANY = 4
"""Times the documents of the run that shows whether memory grows with their number."""
GOAL_GROWTH = 1.15

THREE_STEPS: tuple[Step, ...] = ({"where": "at > 0"}, {"omit": ["session"]}, {"rename": {"page": "path"}})


@dataclass(frozen=True)
class Case:
    name: str
    steps: Sequence[Step]
    goal: int
    """Records per second."""


CASES = (Case("no step", (), 150_000), Case("three steps", THREE_STEPS, 120_000))


def run(setting: Setting) -> Iterator[Comparison]:
    events = setting.choose(2_000_000, 20_000)
    source, many = setting.folder / "events.ndjson", setting.folder / "many.ndjson"
    write_events(source, events)
    for case in CASES:
        transport = FileTransport(source, events, case.steps, setting.folder / case.name.replace(" ", "-"))
        yield _compared(transport, case, setting.choose(3, 1))
    write_events(many, MANY * events)
    few = FileTransport(source, events, (), setting.folder / "few").whole_command()
    yield _growth(few, FileTransport(many, MANY * events, (), setting.folder / "many").whole_command())
    source.unlink()
    many.unlink()


def _compared(transport: FileTransport, case: Case, rounds: int) -> Comparison:
    figures = by_turns(
        [
            Contender(Role.US, "file source, log, route, file destination", transport.measure),
            Contender(Role.PEER, "Spark's own stream from text file to text files, no log between", transport.spark),
            Contender(Role.LIMIT, "a copy of the file in blocks of 1 MiB, synced", transport.bare_copy),
        ],
        rounds,
    )
    us, peer, _ = figures
    whole = transport.whole_command()
    events = transport.events
    return Comparison(
        f"transport, files, {case.name}",
        "records/s",
        figures,
        Goal(f">= {case.goal:,}/s", us.value >= case.goal),
        (
            f"{events:,} documents of {DOCUMENT_BYTES} bytes, in batches of {BATCH:,}; seconds of the source and of the"
            " route (first batch to last commit) added, every record counted",
            f"{case.name}: {us.value / peer.value:.2f} x Spark's own stream",
            f"{case.name}, in the last round: the source alone {events / transport.reading:,.0f}/s, the route"
            f" {events / transport.writing:,.0f}/s",
            f"{case.name}, one `penstock run --once` from file to files: {whole.command_seconds:.1f} s from call to"
            f" end ({events / whole.command_seconds:,.0f}/s), of which the route's batches {whole.seconds:.1f} s",
        ),
    )


def _growth(few: Delivered, many: Delivered) -> Comparison:
    growth = many.peak_mib / few.peak_mib
    parts = ", ".join(f"{part} {few.peak[part]:,.0f} -> {mib:,.0f}" for part, mib in many.peak.items())
    return Comparison(
        "transport, files, memory",
        "MiB",
        ours("peak", many.peak_mib),
        Goal(f"<= {GOAL_GROWTH:.2f} x that of {few.events:,} documents", growth <= GOAL_GROWTH),
        (
            f"{few.peak_mib:,.0f} MiB with {few.events:,} documents, x {growth:.2f} with {many.events:,}: peak of all"
            f" processes of one `penstock run --once` together ({parts} MiB resident; the source counts as engine)",
        ),
    )


class FileTransport:
    """One file on its ways to another place, each in a folder that is gone afterwards."""

    def __init__(self, source: Path, events: int, steps: Sequence[Step], folder: Path) -> None:
        self.events = events
        self.reading = self.writing = 0.0
        """Seconds of the last round."""
        self._source, self._steps, self._folder = source, steps, folder
        self._rounds = count(1)

    def measure(self) -> float:
        folder = self._room()
        try:
            self.reading = _in_a_process(self._source, folder / "read")
            project = folder / "project"
            project.mkdir()
            out = {"type": "file", "path": str(folder / "out")}
            self.writing = deliver(folder / "read/log", project, out, BATCH, self.events, self._steps).seconds
            self._check(folder / "out")
        finally:
            shutil.rmtree(folder)
        return self.events / (self.reading + self.writing)

    def whole_command(self) -> Delivered:
        folder = self._room()
        try:
            source = {"type": "file", "path": str(self._source)}
            out = {"type": "file", "path": str(folder / "out")}
            run = run_project(write_project(folder, source, out, BATCH, self._steps), self.events)
            self._check(folder / "out")
        finally:
            shutil.rmtree(folder)
        return run

    def spark(self) -> float:
        folder = self._room()
        try:
            seconds = seconds_of_spark(self._source, folder / "out", bool(self._steps))
            self._check(folder / "out")
        finally:
            shutil.rmtree(folder)
        return self.events / seconds

    def bare_copy(self) -> float:
        target = self._source.with_suffix(".copy")
        seconds = seconds_of(lambda: _copy(self._source, target))
        target.unlink()
        return self.events / seconds

    def _room(self) -> Path:
        folder = self._folder / str(next(self._rounds))
        folder.mkdir(parents=True)
        return folder

    def _check(self, folder: Path) -> None:
        found = sum(path.read_bytes().count(b"\n") for path in folder.iterdir() if path.is_file() and _visible(path))
        if found != self.events:
            raise RuntimeError(f"of {self.events:,} documents {found:,} were written")


def write_events(path: Path, events: int) -> None:
    some = short_texts(min(events, DISTINCT), DOCUMENT_BYTES)
    with path.open("wb") as file:
        for start in range(0, events, len(some)):
            file.write(b"\n".join(some[: events - start]) + b"\n")


def _visible(path: Path) -> bool:
    return not path.name.startswith((".", "_"))


def _in_a_process(source: Path, folder: Path) -> float:
    """Seconds of the file source, in a process of its own as in a pipeline."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_read, source, folder).result()


def _read(source: Path, folder: Path) -> float:
    reader = FileSource(FileConfig(path=source), SourceContext(SOURCE, folder / "log", "{}", folder / "state"))
    return seconds_of(lambda: reader.run(Event(), once=True))


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as file, target.open("wb") as copy:
        while block := file.read(CHUNK):
            copy.write(block)
        copy.flush()
        os.fsync(copy.fileno())
