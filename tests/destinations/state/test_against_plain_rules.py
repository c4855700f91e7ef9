"""Any arrivals, cuts into batches, refusals, outages, retries, replays and restarts: the tables end with the newest
bundles, each version is written once, no dependency is violated (the store in memory checks it, and triggers in
PostgreSQL do), and every receipt adds up."""

from __future__ import annotations

import tempfile
import uuid
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from penstock.conflation.bundle import Bundle
from penstock.conflation.version import Version, parse_version
from penstock.destinations.state.destination import StateDestination
from tests.conflation.reference import PlainUnit
from tests.conflation.samples import KINDS, bundle
from tests.destinations.state.bundles import Bench, config, items
from tests.destinations.state.memory_store import Database, MemoryDestination
from tests.destinations.state.watched_postgres import WatchedPostgres
from tests.support.database import Database as Schema

SOURCES = ["hub1", "hub2", "hub3"]
MARKS = {"CC": "@", "L": "@", "D": "^"}
"""How bundles name the version that they need."""
versions = st.builds("{}.{}".format, st.integers(0, 1), st.integers(0, 3))


class Machine(RuleBasedStateMachine):
    database: Database | WatchedPostgres
    writers = 10
    partitions = 1

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.bench = Bench(self.new_destination(), Path(self._folder.name) / "stage", partitions=self.partitions)
        self.is_replayed = False

    @abstractmethod
    def new_destination(self) -> StateDestination:
        """One that knows nothing but what the database has."""

    def teardown(self) -> None:
        self._folder.cleanup()

    @rule(source=st.sampled_from(SOURCES), kind=st.sampled_from(sorted(KINDS)), version=versions, needs=versions)
    def arrive(self, source: str, kind: str, version: str, needs: str) -> None:
        self.add(f"{kind}{version}{MARKS[kind]}{needs}" if kind in MARKS else f"{kind}{version}", source)

    def add(self, text: str, source: str) -> None:
        self.bench.add(text, source, data_of(bundle(text)))

    @rule()
    def deliver(self) -> None:
        self.bench.deliver()

    @precondition(lambda self: self.bench.waiting)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        # All groups of a source that are due, or none of it, as the engine does.
        sources = sorted({each.group.partition("\x1f")[0] for each in self.bench.waiting})
        chosen = data.draw(st.sets(st.sampled_from(sources), min_size=1))
        self.bench.retry([each.group for each in self.bench.waiting if each.group.partition("\x1f")[0] in chosen])

    @rule(kinds=st.sets(st.sampled_from(sorted(KINDS)), max_size=2))
    def refuse_kinds(self, kinds: set[str]) -> None:
        self.database.refuse(kinds)

    @rule()
    def restart(self) -> None:
        self.bench.destination = self.new_destination()

    @rule(share=st.floats(0, 1))
    def replay(self, share: float) -> None:
        self.bench.rewind(int(self.bench.read * share))
        self.is_replayed = True

    @invariant()
    def each_version_is_written_once(self) -> None:
        written = self.database.written
        assert len(set(written)) == len(written)

    @invariant()
    def no_dependency_is_violated(self) -> None:
        assert self.database.violations == []

    @invariant()
    def the_position_is_never_past_what_waits(self) -> None:
        """But for what was read again: the position does not go back for it."""
        waiting = sorted(number for each in self.bench.waiting for number in self.bench.numbers(each.places))
        for partition, upto in self.bench.upto(self.bench.read).items():
            own = (number // self.partitions for number in waiting if number % self.partitions == partition)
            assert self.is_replayed or self.database.position(partition) <= next(own, upto)

    def end_troubles(self) -> None:
        self.database.refuse(())

    @rule()
    def settle(self) -> None:
        """Once nothing is refused any more, the plain rules say what is written last of each kind."""
        self.end_troubles()
        self.bench.deliver()
        self.bench.retry()
        self.bench.retry()
        there = self.database.versions
        for (source, kind), newest in self._newest().items():
            assert there[source, kind].version == newest
            values = self.database.values("h" if kind == "H" else kind.lower(), source)
            assert str(newest) in values
            assert kind == "H" or len(values) == 1
        for source in SOURCES:
            waits = {
                (kind, each.about)
                for each in self.bench.waiting
                for of, _, kind in [each.group.partition("\x1f")]
                if of == source
            }
            assert all(self._waits_rightly(source, kind) for kind, _ in waits), waits

    def _newest(self) -> dict[tuple[str, str], Version]:
        """Of each kind that depends on nothing, the newest version that has come."""
        found: dict[tuple[str, str], Version] = {}
        for each in self.bench.log:
            key = (each.headers["source"], each.headers["kind"])
            if KINDS[key[1]].depends_on is None:
                version = parse_version(each.headers["version"])
                found[key] = max(version, found.get(key, version))
        return found

    def _waits_rightly(self, source: str, kind: str) -> bool:
        """Whether no bundle of the kind that waits could be written."""
        plain = PlainUnit(KINDS)
        plain.processed = {name: done.version for (of, name), done in self.database.versions.items() if of == source}
        for each in self.bench.waiting:
            if each.group == f"{source}\x1f{kind}":
                for number in self.bench.numbers(each.places):
                    headers = self.bench.log[number].headers
                    words = f"{kind}{headers['version']}"
                    words += f"@{headers['depends_on']}" if "depends_on" in headers else ""
                    words += f"^{headers['base']}" if "base" in headers else ""
                    plain.insert(bundle(words, number, source))
        first = min(plain.needed, key=lambda each: each.version, default=None)
        return first is not None and not plain.is_met(first)


class InMemory(Machine):
    database: Database

    def __init__(self) -> None:
        self.database = Database()
        super().__init__()

    def new_destination(self) -> StateDestination:
        return MemoryDestination(config(max_attempts=1_000, workers=self.writers), self.database)

    @rule(away=st.booleans())
    def go_away_or_come_back(self, away: bool) -> None:
        self.database.away = away
        self.bench.destination._outage.end()

    def end_troubles(self) -> None:
        super().end_troubles()
        self.database.away = False
        self.bench.destination._outage.end()


class InMemoryByOneWriter(InMemory):
    """All sources wait for one writer, who writes what he can together."""

    writers = 1


class InMemoryOverThreePartitions(InMemory):
    """As the records of a collector with three workers come."""

    partitions = 3


class InPostgres(Machine):
    database: WatchedPostgres
    writers = 2

    def __init__(self, url: str) -> None:
        self.database = WatchedPostgres(Schema(url, f"t{uuid.uuid4().hex[:12]}"))
        self.database.create()
        super().__init__()
        # All tables are there before they are watched.
        for text in ("A0.0", "C0.0", "CC0.0@0.0", "D0.0^0.0", "L0.0@0.0", "I0.0", "H0.0"):
            self.add(text, "first")
        self.bench.deliver()
        self.database.watch()

    def new_destination(self) -> StateDestination:
        return self.database.destination(max_attempts=1_000, workers=self.writers)

    def teardown(self) -> None:
        super().teardown()
        self.database.drop()


def data_of(found: Bundle) -> Mapping[str, object]:
    """A row that tells its version, and what it rests on."""
    kind, version = KINDS[found.kind], str(found.version)
    row: dict[str, object] = {"id": version if found.kind in ("D", "H") else "1", "v": version, "kind": found.kind}
    if (rests_on := kind.depends_on) is not None:
        how = "implicit" if rests_on.implicit else str(rests_on.match)
        row |= {"of": rests_on.kind, "needs": version if rests_on.implicit else str(found.needs), "how": how}
    return {"create": [row]} if found.kind == "H" else items(row)


TestInMemory = InMemory.TestCase
TestInMemoryByOneWriter = InMemoryByOneWriter.TestCase
TestInMemoryOverThreePartitions = InMemoryOverThreePartitions.TestCase


def test_in_postgres_no_order_of_events_violates_a_rule(postgres_url: str) -> None:
    run_state_machine_as_test(
        partial(InPostgres, postgres_url), settings=settings(max_examples=10, stateful_step_count=30)
    )
