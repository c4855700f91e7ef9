"""Transport: what goes from one place through the log to another, section by section.

``files``: an NDJSON file -> log -> NDJSON files, without a step and with three. First the source reads the file into
the log, then ``penstock run --once`` takes it from there; the seconds of both are added, without the starts of Python
and the JVM. The limit copies the file and syncs it, which no transport can do without.

A section is a function that yields comparisons; ``SECTIONS`` lists them.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event

from bench.measure import Comparison, Contender, Goal, Role, Setting, by_turns, seconds_of
from bench.processes import SOURCE
from bench.records import texts
from bench.to_the_end import Step, deliver
from penstock.sources.contract import SourceContext
from penstock.sources.file.config import FileConfig
from penstock.sources.file.source import FileSource

DOCUMENT_BYTES = 180
BATCH = 500_000
CHUNK = 2**20

THREE_STEPS: tuple[Step, ...] = ({"where": "at > 0"}, {"omit": ["session"]}, {"rename": {"page": "path"}})


def run(setting: Setting) -> list[Comparison]:
    return [comparison for section in SECTIONS for comparison in section(setting)]


def files(setting: Setting) -> Iterator[Comparison]:
    """NDJSON file -> log -> NDJSON files."""
    events = setting.choose(2_000_000, 20_000)
    rounds = setting.choose(3, 1)
    source = setting.folder / "events.ndjson"
    _write_events(source, events)
    cases: Sequence[tuple[str, Sequence[Step], int]] = (
        ("files, no step", (), 150_000),
        ("files, three steps", THREE_STEPS, 120_000),
    )
    for name, steps, goal in cases:
        transport = _FileTransport(source, events, steps, setting.folder / name.replace(", ", "-").replace(" ", "-"))
        figures = by_turns(
            [
                Contender(Role.US, "file source, log, route, file destination", transport.measure),
                Contender(Role.LIMIT, "a copy of the file in blocks of 1 MiB, synced", transport.bare_copy),
            ],
            rounds,
        )
        ours = figures[0].value
        alone = events / transport.reading, events / transport.writing
        yield Comparison(
            f"transport, {name}",
            "records/s",
            figures,
            Goal(f">= {goal:,}/s", ours >= goal),
            (
                f"{events:,} documents of {DOCUMENT_BYTES} bytes, in batches of {BATCH:,}; seconds of the source and of"
                " the route (first batch to last commit) added, every record counted",
                f"in the last round the source alone: {alone[0]:,.0f}/s; the route: {alone[1]:,.0f}/s",
            ),
        )


SECTIONS: tuple[Callable[[Setting], Iterator[Comparison]], ...] = (files,)


class _FileTransport:
    def __init__(self, source: Path, events: int, steps: Sequence[Step], folder: Path) -> None:
        self.reading = self.writing = 0.0
        """Seconds of the last round."""
        self._source, self._events, self._steps, self._folder = source, events, steps, folder
        self._rounds = count(1)

    def measure(self) -> float:
        folder = self._folder / str(next(self._rounds))
        folder.mkdir(parents=True)
        try:
            self.reading = _in_a_process(self._source, folder / "read")
            out = {"type": "file", "path": str(folder / "out")}
            project = folder / "project"
            project.mkdir()
            self.writing = deliver(folder / "read/log", project, out, BATCH, self._events, self._steps).seconds
            written = sum(path.read_bytes().count(b"\n") for path in (folder / "out").iterdir())
            if written != self._events:
                raise RuntimeError(f"of {self._events:,} documents {written:,} were written")
        finally:
            shutil.rmtree(folder)
        return self._events / (self.reading + self.writing)

    def bare_copy(self) -> float:
        target = self._source.with_suffix(".copy")
        seconds = seconds_of(lambda: _copy(self._source, target))
        target.unlink()
        return self._events / seconds


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


def _write_events(path: Path, events: int) -> None:
    some = texts(min(events, 100_000), DOCUMENT_BYTES)
    with path.open("wb") as file:
        for start in range(0, events, len(some)):
            file.write(b"\n".join(some[: events - start]) + b"\n")
