"""Writes one bundle, or one pack, in one transaction, and says how that has ended; or small bundles of several units
together.

The bytes are read here, and not before. What the rows cannot be made of fails at once; what the database refuses is
tried again after longer and longer pauses, and given up after as many attempts as the config says. Of a pack only the
bundles that are refused themselves: it is tried bundle by bundle. What is merely not possible now (a lock, a lost
connection, a table that somebody must fix) is never given up. Of what is written together nothing counts as failed:
what is not taken is tried by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from penstock.conflation.attempts import Attempts
from penstock.conflation.batch_plan import Known
from penstock.conflation.bundle import Processed
from penstock.conflation.kinds import Sync
from penstock.conflation.positions import Positions
from penstock.conflation.unit_state import Work
from penstock.conflation.unmet_dependency import Parked
from penstock.conflation.version import Version
from penstock.destinations.state.bundle_rows import RowRules, rows_of_bundle, rows_of_pack
from penstock.destinations.state.staged_bundles import StagedBundles
from penstock.destinations.state.store.contract import RestsOn, StateChange, StateRows, StateSession, StateStore
from penstock.destinations.state.waiting_bundles import SourceKind
from penstock.destinations.state.writing.joined_rows import rows_of_each
from penstock.destinations.state.writing.joined_writes import JoinedWrites, JoinHistory
from penstock.destinations.state.writing.write_ends import (
    Away,
    Divided,
    GivenUp,
    NotTaken,
    Separated,
    WriteEnd,
    Written,
)
from penstock.errors import RefusedError, TableRefusedError, TransientError

Changed = TypeVar("Changed")

BAD_ROWS = "bad_rows"
"""The code of a bundle whose data are not the rows that its kind has."""
PARKED = "parked"
"""The code of a bundle that the database refused too often."""


class Failures:
    """How often in a row each kind of a source was not taken, from one batch to the next. May be used by several
    threads, each for other units."""

    def __init__(self) -> None:
        self._counts: dict[SourceKind, tuple[Version | None, int]] = {}

    def note(self, work: Work) -> int:
        """Count one more, and return how many there are of this bundle. A pack that gets longer is still the same; one
        on another base is not."""
        key = (work.unit.source, work.kind.name)
        about = {Sync.COMPLETE: work.version, Sync.DELTA: work.bundles[-1].base, Sync.HYBRID: None}[work.kind.sync]
        before, count = self._counts.get(key, (about, 0))
        count = count + 1 if before == about else 1
        self._counts[key] = about, count
        return count

    def has_noted(self, work: Work) -> bool:
        return (work.unit.source, work.kind.name) in self._counts

    def forget(self, work: Work) -> None:
        self._counts.pop((work.unit.source, work.kind.name), None)


@dataclass
class History:
    """What a destination remembers of its writes, from one batch to the next."""

    refused: Failures = field(default_factory=Failures)
    not_now: Failures = field(default_factory=Failures)
    joined: JoinHistory = field(default_factory=JoinHistory)
    given_up: set[SourceKind] = field(default_factory=set)
    """Kinds of sources whose last bundle was given up."""

    def has_failed(self, work: Work) -> bool:
        """Whether a kind of a source was not taken the last time."""
        was_given_up = (work.unit.source, work.kind.name) in self.given_up
        return was_given_up or self.refused.has_noted(work) or self.not_now.has_noted(work)


@dataclass(frozen=True)
class TableRules:
    table: str
    rows: RowRules


@cache
def load_compiled() -> None:
    """Load what makes rows of data. The first to need it would wait for it, and be taken for slow."""
    rows_of_pack([b'[{"key": 1, "inner": {"text": "", "list": []}}]'], RowRules("", ("key",), Sync.COMPLETE))


class BundleWriter:
    """For one batch. May be called by several threads, each for other units."""

    def __init__(
        self,
        store: StateStore,
        route: str,
        rules: Mapping[str, TableRules],
        attempts: Attempts,
        staged: StagedBundles,
        known: Known,
        positions: Positions,
        history: History,
        joined_patience: float,
    ) -> None:
        """``joined_patience``: how many seconds a statement may take that writes several bundles."""
        self._store = store
        self._route = route
        self._rules = rules
        self._attempts = attempts
        self._staged = staged
        self._processed: dict[SourceKind, Processed] = dict(known.processed)
        self._positions = positions
        self._positions_lock = threading.Lock()
        self._history = history
        self._joined_patience = joined_patience

    @property
    def joined(self) -> JoinedWrites:
        """What ``write`` may be given together."""
        return JoinedWrites(self._history.joined, self._size, self._history.has_failed)

    def write(self, works: Sequence[Work]) -> Sequence[WriteEnd]:
        """Raises ``Away`` if the database cannot be reached."""
        if len(works) > 1:
            return self._write_joined(works)
        begun = time.monotonic()
        end = self._write_alone(works[0])
        self._history.joined.note_alone(works[0].unit, time.monotonic() - begun > self._joined_patience)
        return [end]

    def _write_joined(self, works: Sequence[Work]) -> Sequence[WriteEnd]:
        rules, history = self._rules[works[0].kind.name], self._history.joined
        rows = rows_of_each([self._staged.data(work.bundles[0]) for work in works], rules.rows)
        if rows is None:
            return self._write_sound(works)
        *others, last = zip(works, rows, strict=True)
        # All of them are noted at once: so they are as far as the last one.
        positions = self._positions_after(works)
        changes = [self._change(work, each, {}) for work, each in others] + [self._change(*last, positions)]
        try:
            changed = self._write(lambda session: session.write_together(changes, self._joined_patience))
        except (TransientError, TableRefusedError, RefusedError):
            history.shrink()
            return [Separated()] * len(works)
        history.grow()
        for work in works:
            self._note_written(work)
        at = time.time()
        return [Written(each, at) for each in changed]

    def _write_sound(self, works: Sequence[Work]) -> Sequence[WriteEnd]:
        """Of works whose rows cannot be made together, leave out those whose rows cannot be made at all."""
        are_sound = [self._has_rows(work) for work in works]
        sound = [work for work, is_sound in zip(works, are_sound, strict=True) if is_sound]
        if len(sound) in (0, len(works)):
            self._history.joined.shrink()
            return [Separated()] * len(works)
        ends = iter(self.write(sound))
        return [next(ends) if is_sound else Separated() for is_sound in are_sound]

    def _has_rows(self, work: Work) -> bool:
        try:
            rows_of_bundle(self._staged.data(work.bundles[0]), self._rules[work.kind.name].rows)
        except RefusedError:
            return False
        return True

    def _write_alone(self, work: Work) -> WriteEnd:
        rules = self._rules[work.kind.name]
        try:
            rows = rows_of_pack([self._staged.data(bundle) for bundle in work.bundles], rules.rows)
        except RefusedError as error:
            return Divided(error.what) if len(work.bundles) > 1 else self._give_up(work, BAD_ROWS, error.what)
        change = self._change(work, rows, self._positions_after([work]))
        try:
            changed = self._write(lambda session: session.write(change))
        except TransientError as error:
            return NotTaken(str(error), self._attempts.pause(self._history.not_now.note(work)))
        except TableRefusedError as error:
            return NotTaken(str(error), self._attempts.pause(self._history.not_now.note(work)))
        except RefusedError as error:
            if len(work.bundles) > 1:
                return Divided(error.what)
            count = self._history.refused.note(work)
            if self._attempts.is_last(count):
                return self._give_up(work, PARKED, f"{error.what} It was tried {count} times.")
            return NotTaken(f"{error.what} (attempt {count})", self._attempts.pause(count))
        self._note_written(work)
        return Written(changed, time.time())

    def positions(self) -> dict[int, int]:
        """Where the route stands, by all that is settled."""
        with self._positions_lock:
            return self._positions.after(())

    def _change(self, work: Work, rows: StateRows, positions: Mapping[int, int]) -> StateChange:
        rules = self._rules[work.kind.name]
        return StateChange(
            source=work.unit.source,
            kind=work.kind.name,
            table=rules.table,
            key=rules.rows.key,
            version=work.version,
            place=work.place,
            rows=rows,
            adds_up=work.kind.sync.adds_up,
            previous=self._version_of(work, work.kind.name),
            rests_on=self._rests_on(work),
            route=self._route,
            positions=positions,
        )

    def _write(self, write: Callable[[StateSession], Changed]) -> Changed:
        with ExitStack() as stack:
            try:
                session = stack.enter_context(self._store.session())
            except TransientError as error:
                raise Away(str(error)) from error
            return write(session)

    def _note_written(self, work: Work) -> None:
        self._processed[work.unit.source, work.kind.name] = work.processed
        self._history.given_up.discard((work.unit.source, work.kind.name))
        self._settle(work)

    def _size(self, work: Work) -> int:
        return sum(self._staged.size(bundle) for bundle in work.bundles)

    def _give_up(self, work: Work, code: str, why: str) -> WriteEnd:
        try:
            # First of all: what depends on it is told also after a crash.
            self._store.note_parked(work.unit.source, work.kind.name, Parked(work.version, why))
        except TransientError as error:
            raise Away(str(error)) from error
        self._settle(work)
        self._history.given_up.add((work.unit.source, work.kind.name))
        return GivenUp(code, why)

    def _settle(self, work: Work) -> None:
        self._history.refused.forget(work)
        self._history.not_now.forget(work)
        with self._positions_lock:
            self._positions.note_processed(bundle.place for bundle in work.bundles)

    def _positions_after(self, works: Sequence[Work]) -> dict[int, int]:
        with self._positions_lock:
            return self._positions.after(bundle.place for work in works for bundle in work.bundles)

    def _version_of(self, work: Work, kind: str) -> Version | None:
        found = self._processed.get((work.unit.source, kind))
        return None if found is None else found.version

    def _rests_on(self, work: Work) -> RestsOn | None:
        needed = work.kind.depends_on
        return None if needed is None else RestsOn(needed.kind, self._version_of(work, needed.kind))
