"""Any arrivals, cuts into batches, refusals, outages, retries, replays and restarts: the tables end with the newest
bundles, each version is written once, no dependency is violated (the store in memory checks it, and triggers in
PostgreSQL do), and every receipt adds up."""

from __future__ import annotations

import tempfile
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from penstock.conflation.bundle import Bundle
from penstock.conflation.version import Version, parse_version
from penstock.destinations.state.destination import StateDestination
from penstock.destinations.state.store.contract import StateChange
from penstock.destinations.state.writing.joined_writes import SMALL
from penstock.errors import TargetWentBackError
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
        self.bench.retry(self.some_groups(data))

    def some_groups(self, data: st.DataObject) -> list[str]:
        """All groups of a source that are due, or none of it, as the engine does."""
        sources = sorted({each.group.partition("\x1f")[0] for each in self.bench.waiting})
        chosen = data.draw(st.sets(st.sampled_from(sources), min_size=1))
        return [each.group for each in self.bench.waiting if each.group.partition("\x1f")[0] in chosen]

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


class OlderCopies(InMemoryByOneWriter):
    """The database is replaced by an older copy of it, between two batches or in the midst of one."""

    partitions = 2

    def __init__(self) -> None:
        super().__init__()
        self._put_back = self.database.copy()

    def new_destination(self) -> StateDestination:
        address = {"path": None, "url": "postgresql://nobody@localhost/none"}
        found = MemoryDestination(config(max_attempts=1_000, workers=self.writers, **address), self.database)
        found._check_every = 0.0
        return found

    @rule()
    def copy(self) -> None:
        self._put_back = self.database.copy()

    @rule()
    def put_back(self) -> None:
        self.is_replayed = True
        self._put_back()
        self._put_back = self.database.copy()

    @rule(number=st.integers(0, 3))
    def take_over(self, number: int) -> None:
        """Within the next batch, when so many more writes have begun: then its connections break, too."""
        left = iter(range(number))

        def replace(change: StateChange) -> None:
            if next(left, None) is None and not self.database.away:
                self.database.away = True
                self.put_back()

        self.database.before_write = replace

    @rule(source=st.sampled_from(SOURCES), take_over=st.booleans())
    def lose_the_last(self, source: str, take_over: bool) -> None:
        """Of a batch, or of a retry, all that was written is lost: the copy was made just before it."""
        self.settle()
        self.database.refuse(() if take_over else "A")
        for each in SOURCES:
            version = f"9.{len(self.bench.log)}"
            # Too large to be written with others.
            self.bench.add(f"A{version}", each, items({"id": "1", "v": version, "more": "x" * SMALL}))
        if take_over:
            self.copy()
            self.take_over(SOURCES.index(source))
            self.bench.deliver()
        else:
            self.bench.deliver()
            self.copy()
            self.database.refuse(())
            self.bench.retry([f"{source}\x1fA"])
            self.put_back()
        self.settle()

    @rule()
    def restart(self) -> None:
        # Whoever has not seen it go back does not know that it lacks a retry alone.
        self.settle()
        super().restart()
        self.return_to_position()

    @rule()
    def deliver(self) -> None:
        self.go_back_if_needed(self.bench.deliver)

    @precondition(lambda self: self.bench.waiting)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        groups = self.some_groups(data)
        self.go_back_if_needed(lambda: self.bench.retry(groups))

    @rule()
    def settle(self) -> None:
        self.end_troubles()
        self.go_back_if_needed(self.bench.destination.look_after)
        super().settle()

    def go_back_if_needed(self, write: Callable[[], object]) -> None:
        unread = self.bench.read
        try:
            write()
        except TargetWentBackError:
            self.bench.read = unread
            self.return_to_position()

    def return_to_position(self) -> None:
        """As the engine does when a route starts, also when the destination says that its database has gone back."""
        said = self.bench.destination.position("state")
        assert said is not None
        count, upto = self.partitions, self.bench.upto(self.bench.read)
        waiting = [number for each in self.bench.waiting for number in self.bench.numbers(each.places)]
        back_to = []
        for partition in range(count):
            needs, told = said.get(partition, (0, 0))
            hold = min((at // count for at in waiting if at % count == partition), default=upto[partition])
            if needs < hold or told < upto[partition]:
                back_to.append(min(needs, hold) * count + partition)
        if back_to:
            self.bench.rewind(min(back_to))


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
TestOlderCopies = OlderCopies.TestCase
TestOlderCopies.settings = settings(max_examples=20, stateful_step_count=20)
TestInMemoryOverThreePartitions = InMemoryOverThreePartitions.TestCase


def test_in_postgres_no_order_of_events_violates_a_rule(postgres_url: str) -> None:
    run_state_machine_as_test(
        partial(InPostgres, postgres_url), settings=settings(max_examples=10, stateful_step_count=30)
    )
