"""Two thousand sources, one of which sends a hundred times more, and one whose every write takes seconds: the others
must not notice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx
import psycopg

from penstock.testing.waiting import eventually
from tests.chaos.project import SECRET
from tests.chaos.run import Say
from tests.chaos.state.hub import CLUSTERS
from tests.chaos.state.project import StateProject
from tests.chaos.state.witness import Witness, Write
from tests.support import plain_http
from tests.support.postgres import Server

BUSY, SLOW = "busy", "slow"
TIMES_MORE = 100
SLOW_SECONDS = 5
SLOW_RATE = 1.0
"""Bundles per second: there is always one to write."""
PER_POST = 20
WITHIN = 1.10
"""How much longer the others may take."""

_SLOW = f"""
CREATE FUNCTION take_long() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep({SLOW_SECONDS});
    RETURN NEW;
END $$;
CREATE TRIGGER take_long BEFORE INSERT OR UPDATE ON {CLUSTERS} FOR EACH ROW WHEN (NEW.source = '{SLOW}')
    EXECUTE FUNCTION take_long();
"""


@dataclass(frozen=True)
class Round:
    """The delays of ordinary sources, from before the request to the write, in seconds."""

    delays: Sequence[float]
    writes: Counter[str]
    """How often each source was written."""

    @property
    def p95(self) -> float:
        return sorted(self.delays)[int(0.95 * len(self.delays))]

    def __str__(self) -> str:
        slow, busy = self.writes[SLOW], self.writes[BUSY]
        return (
            f"{len(self.delays):,} bundles of others, delay p50 {median(self.delays):.3f} s, p95 {self.p95:.3f} s, max"
            f" {max(self.delays):.3f} s; {busy} writes of the busy one, {slow} of the slow one"
        )


@dataclass(frozen=True)
class Fairness:
    alone: Sequence[Round]
    beside: Sequence[Round]

    @property
    def ratio(self) -> float:
        """The p95 beside the two, as a share of that without them; the median of the rounds of each."""
        return median(each.p95 for each in self.beside) / median(each.p95 for each in self.alone)

    @property
    def is_fair(self) -> bool:
        return self.ratio <= WITHIN


def fairness(
    folder: Path,
    server: Server,
    sources: int,
    period: float,
    seconds: float,
    rounds: int,
    say: Say = lambda _: None,
) -> Fairness:
    """``period``: from one bundle of a source to its next. Rounds without and with the two take turns."""
    project, witness = StateProject(folder, server, workers=10), Witness(server.url)
    witness.install()
    others = Reporter(project.port, [f"hub{number}" for number in range(sources)], sources / period)
    busy = Reporter(project.port, [BUSY], TIMES_MORE / period)
    slow = Reporter(project.port, [SLOW], SLOW_RATE)
    try:
        project.start()
        project.wait_until_ready()
        with others.reporting():
            eventually(lambda: len(project.versions()) == sources, f"all have reported (see {project.log})", every=0.5)
            with psycopg.connect(server.url) as connection:
                connection.execute(_SLOW.encode())
            with busy.reporting(), slow.reporting():
                # What is slow is found out once, by waiting for it.
                eventually(lambda: (SLOW, CLUSTERS) in project.versions(), "the slow one is written", every=0.5)
            found: dict[bool, list[Round]] = {False: [], True: []}
            for number in range(2 * rounds):
                beside = number % 2 == 1
                _wait_for_writes(project, slow)
                with busy.reporting(beside), slow.reporting(beside):
                    began, before = time.time(), witness.mark()
                    time.sleep(seconds)
                    ended = time.time()
                _wait_for_writes(project, others)
                found[beside].append(_round(others, witness.writes(before), began, ended))
                say(f"{'beside both' if beside else 'alone      '}: {found[beside][-1]}")
        project.stop()
        return Fairness(found[False], found[True])
    finally:
        project.end()


def _round(others: Reporter, writes: Sequence[Write], began: float, ended: float) -> Round:
    """Of every bundle of the round, also of one that was conflated away, the time until it or a newer one was there."""
    written: dict[str, list[tuple[int, float]]] = {}
    for write in writes:
        written.setdefault(write.source, []).append((write.version.generation, write.at.timestamp()))
    delays = [
        next(at for generation, at in written[source] if generation >= sent) - moment
        for (source, sent), moment in others.sent.copy().items()
        if began <= moment <= ended
    ]
    return Round(delays, Counter(write.source for write in writes if write.at.timestamp() <= ended))


def _wait_for_writes(project: StateProject, reporter: Reporter) -> None:
    """Until everything is written that was reported until now."""
    newest = dict(list(reporter.sent))

    def are_written() -> bool:
        found = project.versions()
        return all(
            (source, CLUSTERS) in found and found[source, CLUSTERS].generation >= generation
            for source, generation in newest.items()
        )

    eventually(are_written, f"what was reported is written (see {project.log})", every=0.5)


@dataclass
class Reporter:
    """Some sources that report one after the other, at so many bundles per second in all."""

    port: int
    sources: Sequence[str]
    rate: float
    sent: dict[tuple[str, int], float] = field(default_factory=dict)
    """By source and generation the moment before the request."""
    _at: int = 0

    @contextmanager
    def reporting(self, does: bool = True) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._work, args=(stop,), daemon=True)
        if does:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            if does:
                thread.join()

    def _work(self, stop: threading.Event) -> None:
        per_post = min(PER_POST, len(self.sources))
        due = time.monotonic()
        url = f"http://127.0.0.1:{self.port}"
        with httpx.Client(base_url=url, timeout=60, verify=plain_http.NO_AUTHORITIES) as http:
            while not stop.wait(max(0.0, due - time.monotonic())):
                bundles = [self._bundle() for _ in range(per_post)]
                headers = {"X-Auth-Token": SECRET}
                http.post("/api/v1/bundles", json=bundles, headers=headers).raise_for_status()
                due += per_post / self.rate

    def _bundle(self) -> dict[str, object]:
        source = self.sources[self._at % len(self.sources)]
        generation = self._at // len(self.sources)
        self._at += 1
        self.sent[source, generation] = time.time()
        items = [{"id": "c1", "v": f"value {generation}"}]
        return {"source": source, "kind": CLUSTERS, "version": f"0.{generation}", "data": {"items": items}}
