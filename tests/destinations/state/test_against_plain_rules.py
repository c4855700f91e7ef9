"""Any arrivals, cuts into batches, refusals, outages, retries and restarts: the tables end with the newest bundles,
each version is written once, no dependency is violated (the store checks it), and every receipt adds up."""

from __future__ import annotations

import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.conflation.version import Version, parse_version
from penstock.destinations.state.store.contract import StateChange
from tests.conflation.reference import PlainUnit
from tests.conflation.samples import KINDS, bundle
from tests.destinations.state.bundles import Bench, config
from tests.destinations.state.memory_store import Database, MemoryDestination, refuse

SOURCES = ["hub1", "hub2", "hub3"]
versions = st.builds("{}.{}".format, st.integers(0, 1), st.integers(0, 3))


class DestinationMachine(RuleBasedStateMachine):
    writers = 10

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.database = Database()
        self.database.before_write = self._maybe_refuse
        self.refused: set[str] = set()
        self.bench = Bench(self._destination(), Path(self._folder.name) / "stage")

    def _destination(self) -> MemoryDestination:
        return MemoryDestination(config(max_attempts=1_000, workers=self.writers), self.database)

    def _maybe_refuse(self, change: StateChange) -> None:
        if change.kind in self.refused:
            raise refuse("not this kind.")

    def teardown(self) -> None:
        self._folder.cleanup()

    @rule(source=st.sampled_from(SOURCES), kind=st.sampled_from(sorted(KINDS)), version=versions, needs=versions)
    def arrive(self, source: str, kind: str, version: str, needs: str) -> None:
        mark = {"CC": "@", "L": "@", "D": "^"}.get(kind)
        self.bench.add(f"{kind}{version}{mark}{needs}" if mark else f"{kind}{version}", source)

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
        self.refused = kinds

    @rule(away=st.booleans())
    def go_away_or_come_back(self, away: bool) -> None:
        self.database.away = away
        self.bench.destination._outage.end()

    @rule()
    def restart(self) -> None:
        self.bench.destination = self._destination()

    @invariant()
    def each_version_is_written_once(self) -> None:
        assert len(set(self.database.written)) == len(self.database.written)

    @invariant()
    def the_position_is_never_past_what_waits(self) -> None:
        position = self.database.positions.get("state", {}).get(0, 0)
        first = min((each.places.column("offset")[0].as_py() for each in self.bench.waiting), default=self.bench.read)
        assert position <= first

    @rule()
    def settle(self) -> None:
        """Once nothing is refused any more, the plain rules say what is written last of each kind."""
        self.refused, self.database.away = set(), False
        self.bench.destination._outage.end()
        self.bench.deliver()
        self.bench.retry()
        self.bench.retry()
        for (source, kind), newest in self._newest().items():
            assert self.database.versions[source, kind].version == newest
            table = "h" if kind == "H" else kind.lower()
            values = [row["v"] for row in self.database.rows(table, source)]
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
                for offset in each.places.column("offset").to_pylist():
                    headers = self.bench.log[offset].headers
                    words = f"{kind}{headers['version']}"
                    words += f"@{headers['depends_on']}" if "depends_on" in headers else ""
                    words += f"^{headers['base']}" if "base" in headers else ""
                    plain.insert(bundle(words, offset, source))
        first = min(plain.needed, key=lambda each: each.version, default=None)
        return first is not None and not plain.is_met(first)


class OneWriterMachine(DestinationMachine):
    """All sources wait for one writer, who writes what he can together."""

    writers = 1


TestDestination = DestinationMachine.TestCase
TestOneWriter = OneWriterMachine.TestCase
