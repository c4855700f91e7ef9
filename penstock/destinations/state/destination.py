"""Keeps the newest state that sources report in a database: each bundle exactly once, in its order, never back in time.

A batch brings bundles; the database says which versions it has, the ledger which bundles wait. What is ready is
written, one transaction per bundle, by several writers; what is not waits, with the reason, and comes again. The
version that is written with the rows is the mark: what the database has is not written a second time, whatever ledger,
log or crash brings it again. So there are no marks of batches, and an older copy of the database or of the data folder
is no contradiction: the newest bundles win.

If the database cannot be reached everything waits, the batch is done, and of what waits only the newest is kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from penstock.conflation.attempts import Attempts
from penstock.conflation.batch_plan import Known, gather_units
from penstock.conflation.positions import Positions
from penstock.destinations.contract import (
    NULL_TABLE_BOOK,
    Batch,
    Capabilities,
    Destination,
    Part,
    Receipt,
    Stager,
    TableBook,
    TargetPosition,
)
from penstock.destinations.source_states import SourceStates
from penstock.destinations.state.bundle_rows import RowRules
from penstock.destinations.state.bundle_tallies import bundle_tallies
from penstock.destinations.state.config import KindConfig, StateConfig
from penstock.destinations.state.listening import Listening
from penstock.destinations.state.outage import Outage
from penstock.destinations.state.position_watch import PositionWatch
from penstock.destinations.state.receipt import Settled, groups_behind, table_receipt
from penstock.destinations.state.shared_store import SharedStore
from penstock.destinations.state.staged_bundles import StagedBundles, load_staged
from penstock.destinations.state.stager import BundleStager
from penstock.destinations.state.store.contract import StateStore
from penstock.destinations.state.store.places import DuckdbPlace, PostgresPlace, open_store
from penstock.destinations.state.waiting_bundles import compare_with_waiting
from penstock.destinations.state.writing.bundle_writer import BundleWriter, History, TableRules, load_compiled
from penstock.destinations.state.writing.write_ends import Written
from penstock.destinations.state.writing.writer_pool import PoolResult, SlowUnits, WriterPool
from penstock.errors import PenstockError, TransientError

_log = logging.getLogger("penstock")

BATCH_NUMBER = -1
"""In place of a partition: how far the route is in its batches and retries."""
INACTIVE_CHECKS = 10
"""How often silent sources are looked for while one may be silent."""


class StateDestination(Destination[StateConfig]):
    capabilities = Capabilities(transactions=True, leaves_waiting=True, conflates_waiting=True)

    def __init__(self, config: StateConfig) -> None:
        super().__init__(config)
        self._history = History()
        self._slow = SlowUnits()
        self._outage = Outage()
        self._watch = PositionWatch()
        self._listening = Listening()
        self._inactive_checked = time.monotonic()
        self._check_every = config.inactive_after / INACTIVE_CHECKS
        self._seen: dict[str, float] = {}

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return BundleStager(directory, self.config.declared)

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        if not parts:
            self._note_nothing_new(batch)
            return Receipt()
        staged = load_staged(parts, self.config.declared)
        settled = self._settle(batch, staged)
        receipt = table_receipt(settled, batch.waiting_groups)
        return Receipt([replace(receipt, tallies=bundle_tallies(settled, is_new=bool(batch.ranges)))])

    def position(self, route: str) -> Mapping[int, TargetPosition] | None:
        needs: Mapping[int, int] = {}
        told: Mapping[int, int] = {}
        has_gone_back = self._watch.has_gone_back
        # Whoever asks goes back to there.
        self._watch.forget()
        # A file that is not there is not made by who asks.
        if self.config.path is None or self.config.path.exists():
            with self.open_database() as store:
                needs, told = store.positions(route), store.positions(_told(route))
                self._watch.note(store, route, _told(route))
        if has_gone_back:
            # Perhaps it lacks a retry alone, which nobody sees who has not seen it go back.
            told = {}
        return {partition: TargetPosition(needs[partition], told.get(partition, 0)) for partition in needs}

    def check(self) -> str:
        try:
            with self.open_database() as store:
                sources = len(store.sources())
        except TransientError as error:
            raise PenstockError(error.code, error.what, error.fix) from error
        where = "the PostgreSQL database" if self.config.path is None else str(self.config.path)
        return f"{where} can be used; it has the state of {sources} sources"

    def look_after(self) -> Collection[str]:
        """Find the sources that have fallen silent, and a database that has gone back. What waits behind a write is due
        when that has ended."""
        self._look_at_database()
        return groups_behind(self.config.declared, self._slow.ended)

    def _look_at_database(self) -> None:
        now = time.monotonic()
        self._listening.take_turn()
        if now < self._inactive_checked + self._check_every or self._outage.reason() is not None:
            return
        self._inactive_checked = now
        try:
            with self.open_database() as store:
                self._watch.check(store)
                if set_by := self._listening.compare_clock(store.clock()):
                    _log.warning("the database's clock was set forward by %.0f s: no source is silent for that", set_by)
                if self._listening.has_lasted(self.config.inactive_after):
                    self._set_inactive(store)
        except TransientError:
            # It can wait for its next turn; what waits at the database cannot, and is tried after this.
            self._listening.interrupt()

    def _set_inactive(self, store: StateStore) -> None:
        silent = timedelta(seconds=self.config.inactive_after)
        for source in store.set_inactive(silent, self.config.on_inactive):
            _log.info("source %s has been silent for %s and is inactive", source, silent)

    def open_states(self) -> AbstractContextManager[SourceStates]:
        return self.open_database()

    def open_database(self, connections: int = 1) -> AbstractContextManager[StateStore]:
        """Raises ``TransientError`` if it cannot be reached."""
        config = self.config
        if config.url is None:
            assert config.path is not None, "one of both is given"
            return open_store(DuckdbPlace(config.path), connections)
        url = config.url.get_secret_value()
        place = PostgresPlace(url, config.database_schema, connect_timeout=config.connect_timeout)
        return open_store(place, connections)

    @cached_property
    def _rules(self) -> Mapping[str, TableRules]:
        return {kind.name: _table_rules(kind) for kind in self.config.kinds}

    def _settle(self, batch: Batch, staged: StagedBundles) -> Settled:
        """Write what can be written now."""
        if (reason := self._outage.reason()) is not None:
            return self._leave_all(batch, staged, reason)
        try:
            shared = SharedStore(self.open_database(self.config.workers))
        except TransientError as error:
            self._outage.begin(str(error))
            return self._leave_all(batch, staged, str(error))
        try:
            return self._write_ready(shared, batch, staged)
        finally:
            shared.release()

    def _write_ready(self, shared: SharedStore, batch: Batch, staged: StagedBundles) -> Settled:
        store, kinds, busy = shared.store, self.config.declared, self._slow.busy()
        try:
            self._watch.check(store)
            known = store.known({bundle.source for bundle in staged.bundles})
        except TransientError as error:
            self._outage.begin(str(error))
            return self._leave_all(batch, staged, str(error))
        if batch.ranges and time.time() - staged.received(staged.bundles[-1]) > self.config.inactive_after / 2:
            # The route is far behind: what came since is not known yet.
            self._listening.interrupt()
        late = self._slow.take_ended()
        in_flight = {(work.unit.source, work.kind.name) for work in busy.values()}
        elsewhere = compare_with_waiting(kinds, staged.bundles, batch.waiting_groups, known.processed, in_flight)
        units = gather_units(
            kinds, elsewhere.without_conflated(staged.bundles), replace(known, held=elsewhere.held(kinds))
        )
        pending = [each.bundle.place for state in units.values() for each in state.waiting()]
        positions = Positions(batch.read_upto, [*pending, *elsewhere.places])
        attempts = Attempts(self.config.max_attempts)
        writer = BundleWriter(
            store,
            batch.route,
            self._rules,
            attempts,
            staged,
            known,
            positions,
            self._history,
            # One that is slow is found out, and let go by itself, before it has kept the others as long as it may.
            self.config.unit_patience / 4,
        )
        load_compiled()
        shared.share()
        # Writers of an embedded database take turns: nobody gains if one is let go.
        patience = self.config.unit_patience if self.config.path is None else float("inf")
        pool = WriterPool(writer.write, self.config.workers, patience, self._slow, shared.release, writer.joined)
        result = pool.run(list(units.values()))
        if not result.away:
            try:
                # After bundles that nobody needed no transaction has noted it.
                store.note_positions(batch.route, writer.positions())
                self._note_told(store, batch)
            except TransientError as error:
                result.away = str(error)
        if result.away:
            self._outage.begin(result.away)
            self._listening.interrupt()
        else:
            self._outage.end()
            if batch.ranges:
                written = {work.unit.source for work, end in result.ended if isinstance(end, Written)}
                with suppress(TransientError):
                    self._note_seen(store, {bundle.source for bundle in staged.bundles} - written)
        return Settled(kinds, staged, elsewhere, units, result, late, self._outage.pause)

    def _note_nothing_new(self, batch: Batch) -> None:
        """Note how far the route is: what it has passed must not come again after a restart."""
        if self._outage.reason() is not None:
            return
        waits = compare_with_waiting(self.config.declared, [], batch.waiting_groups, {}, set()).places
        with suppress(TransientError), self.open_database() as store:
            self._watch.check(store)
            store.note_positions(batch.route, Positions(batch.read_upto, waits).after(()))
            self._note_told(store, batch)

    def _note_told(self, store: StateStore, batch: Batch) -> None:
        """Note what the database knows the outcome of, by which it is seen whether it is another one at the next
        batch. A retry brings nothing that is new: its number tells that it was."""
        store.note_positions(_told(batch.route), {**batch.read_upto, BATCH_NUMBER: batch.number})
        self._watch.note(store, batch.route, _told(batch.route))

    def _leave_all(self, batch: Batch, staged: StagedBundles, reason: str) -> Settled:
        """Everything waits, of which only the newest is needed."""
        self._listening.interrupt()
        kinds = self.config.declared
        in_flight = {(work.unit.source, work.kind.name) for work in self._slow.busy().values()}
        elsewhere = compare_with_waiting(kinds, staged.bundles, batch.waiting_groups, {}, in_flight)
        units = gather_units(kinds, elsewhere.without_conflated(staged.bundles), Known(held=elsewhere.held(kinds)))
        result = PoolResult(left=dict.fromkeys(units, reason), away=reason)
        return Settled(kinds, staged, elsewhere, units, result, (), self._outage.pause)

    def _note_seen(self, store: StateStore, sources: Collection[str]) -> None:
        """Sources that sent nothing to write are not silent. Noted now and then, not with every batch."""
        now = time.monotonic()
        due = [source for source in sources if now >= self._seen.get(source, float("-inf")) + self._check_every]
        if due:
            store.note_seen(due)
            self._seen.update(dict.fromkeys(due, now))


def _told(route: str) -> str:
    """Under which name the database notes what it knows the outcome of; no route is called so."""
    return f"{route}/told"


def _table_rules(kind: KindConfig) -> TableRules:
    return TableRules(kind.table, RowRules(kind.rows, kind.key_columns, kind.sync))
