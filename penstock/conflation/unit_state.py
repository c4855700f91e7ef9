"""What is known of one unit: what was written of each kind, what waits, and what may be written next.

Of a kind whose bundles are complete only the newest waits. Bundles of kinds that add up (deltas, hybrids) wait
together, as a pack, and are written as one; a delta on a newer base discards those on older ones. One thing of a unit
is written at a time, the kind with the lowest priority number first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import takewhile

from penstock.conflation.bundle import Bundle, Place, Processed, Unit
from penstock.conflation.kinds import Kind, Kinds, Sync
from penstock.conflation.unmet_dependency import Parked, unmet_dependency
from penstock.conflation.version import Version


@dataclass(frozen=True)
class Work:
    """What is written in one transaction: a complete bundle, or a pack."""

    unit: Unit
    kind: Kind
    bundles: tuple[Bundle, ...]
    """The oldest first; the last one gives its version to all."""

    @property
    def version(self) -> Version:
        return self.bundles[-1].version

    @property
    def place(self) -> Place:
        return self.bundles[-1].place

    @property
    def processed(self) -> Processed:
        """What is known of its kind once it is written."""
        return Processed(self.version, self.place)


@dataclass(frozen=True)
class Waiting:
    bundle: Bundle
    reason: str


class UnitState:
    """Used by one thread at a time."""

    def __init__(
        self,
        unit: Unit,
        kinds: Kinds,
        processed: Mapping[str, Processed] | None = None,
        parked: Mapping[str, Parked] | None = None,
        held: Collection[str] = (),
    ) -> None:
        """``held``: kinds of which older bundles wait elsewhere. What adds up must not overtake them."""
        self.unit = unit
        self.processed = dict(processed or {})
        self.parked = dict(parked or {})
        self.conflated: list[Bundle] = []
        """Bundles that nobody needs any more, because a newer one is known."""
        self.repeated: list[Bundle] = []
        """Bundles that are written already, by an earlier attempt."""
        self._kinds = kinds
        self._held = frozenset(held)
        self._pending: dict[str, dict[Version, Bundle]] = {}
        self._writing: Work | None = None
        self._failing: dict[str, tuple[Version, str]] = {}
        self._one_by_one: set[str] = set()

    def insert(self, bundle: Bundle) -> None:
        """Take a bundle in: from now on it waits, or it is conflated away, or has conflated away others."""
        kind = self._kinds[bundle.kind]
        done = self.processed.get(kind.name)
        if done is not None and bundle.version <= done.version:
            (self.repeated if bundle.place == done.place else self.conflated).append(bundle)
        elif self._is_superseded(kind, bundle):
            self.conflated.append(bundle)
        else:
            pack = self._pending.setdefault(kind.name, {})
            if pack and _replaces(kind, bundle, _any_of(pack)):
                self._discard(kind.name, list(pack))
            pack[bundle.version] = bundle
            self._discard_outdated_deltas(kind)

    def find_next(self) -> Work | None:
        """What can be written next; ``None`` if something is being written, or nothing is ready."""
        if self._writing is not None:
            return None
        found = ((kind, self._ready(kind)) for kind in self._kinds.values() if self._pending.get(kind.name))
        return next((Work(self.unit, kind, tuple(ready)) for kind, ready in found if ready), None)

    def begin_next(self) -> Work | None:
        """Begin to write what comes next, if there is anything."""
        work = self.find_next()
        if work is not None:
            for bundle in work.bundles:
                del self._pending[work.kind.name][bundle.version]
        self._writing = work or self._writing
        return work

    def note_written(self) -> None:
        """What was begun is written."""
        work = self._end()
        self.processed[work.kind.name] = work.processed
        self._failing.pop(work.kind.name, None)
        self.parked.pop(work.kind.name, None)
        pack = self._pending.get(work.kind.name, {})
        self._discard(work.kind.name, [version for version in pack if version <= work.version])

    def note_failed(self, why: str) -> None:
        """What was begun is not written: it waits again, under what came meanwhile, until there is a newer bundle of
        its kind or ``try_again``."""
        work = self._end()
        self._failing[work.kind.name] = (work.version, why)
        self._put_back(work)

    def return_begun(self) -> None:
        """What was begun is not written, for no fault of its own: it waits again as before."""
        self._put_back(self._end())

    def divide(self) -> None:
        """What was begun is a pack of which something is refused: from now on the bundles of its kind are written one
        by one, so that only what is refused itself is not written."""
        work = self._end()
        assert len(work.bundles) > 1, "one bundle cannot be divided"
        self._one_by_one.add(work.kind.name)
        self._put_back(work)

    def note_parked(self, why: str) -> None:
        """What was begun is given up: it waits no more, and what depends on it is told why."""
        work = self._end()
        self.parked[work.kind.name] = Parked(work.version, why)

    def try_again(self, kind: str) -> None:
        """Let what has failed of a kind be tried once more."""
        self._failing.pop(kind, None)

    def waiting(self) -> list[Waiting]:
        """All bundles that wait, each with the reason."""
        return [
            Waiting(bundle, self._reason(self._kinds[name], bundle))
            for name, pack in self._pending.items()
            for _, bundle in sorted(pack.items())
        ]

    def _put_back(self, work: Work) -> None:
        pack = self._pending.setdefault(work.kind.name, {})
        newer = _any_of(pack) if pack else None
        for bundle in work.bundles:
            if (newer and _replaces(work.kind, newer, bundle)) or self._is_outdated(work.kind, bundle):
                self.conflated.append(bundle)
            else:
                pack[bundle.version] = bundle

    def _end(self) -> Work:
        work, self._writing = self._writing, None
        assert work is not None, "nothing is being written"
        return work

    def _ready(self, kind: Kind) -> list[Bundle]:
        """The bundles of a kind that can be written together now."""
        if kind.name in self._held and kind.sync.adds_up:
            return []
        pack = self._pending.get(kind.name, {})
        ready = list(takewhile(lambda bundle: self._unmet(kind, bundle) is None, (pack[each] for each in sorted(pack))))
        if kind.name in self._one_by_one:
            ready = ready[:1]
        failed, _ = self._failing.get(kind.name, (None, ""))
        return [] if ready and failed is not None and ready[-1].version <= failed else ready

    def _unmet(self, kind: Kind, bundle: Bundle) -> str | None:
        return unmet_dependency(bundle, kind.depends_on, self.processed, self.parked)

    def _reason(self, kind: Kind, bundle: Bundle) -> str:
        if (unmet := self._unmet(kind, bundle)) is not None:
            return unmet
        if kind.name in self._failing:
            return self._failing[kind.name][1]
        return f"waits behind other bundles of {kind.name}"

    def _is_superseded(self, kind: Kind, bundle: Bundle) -> bool:
        """Whether what waits or is being written makes a bundle needless."""
        if self._is_outdated(kind, bundle):
            return True
        begun = self._writing.bundles if self._writing is not None and self._writing.kind is kind else ()
        for pack in (self._pending.get(kind.name), {each.version: each for each in begun}):
            if pack and (bundle.version in pack or _replaces(kind, _any_of(pack), bundle)):
                return True
        return False

    def _is_outdated(self, kind: Kind, bundle: Bundle) -> bool:
        """Whether a delta is one of an older state than the newest that is known."""
        if kind.sync is not Sync.DELTA or kind.depends_on is None:
            return False
        newest = self._newest_known(kind.depends_on.kind)
        return newest is not None and bundle.base is not None and bundle.base < newest

    def _newest_known(self, kind: str) -> Version | None:
        known = [*self._pending.get(kind, {})]
        if kind in self.processed:
            known.append(self.processed[kind].version)
        if self._writing is not None and self._writing.kind.name == kind:
            known.append(self._writing.version)
        return max(known, default=None)

    def _discard_outdated_deltas(self, kind: Kind) -> None:
        for delta in self._kinds.deltas[kind.name]:
            pack = self._pending.get(delta.name, {})
            self._discard(delta.name, [version for version in pack if self._is_outdated(delta, pack[version])])

    def _discard(self, kind: str, versions: Collection[Version]) -> None:
        self.conflated += [self._pending[kind].pop(version) for version in versions]


def _any_of(pack: Mapping[Version, Bundle]) -> Bundle:
    """One bundle of a pack: what another replaces, or is replaced by, is the same for all of them, because a pack of
    deltas has one base."""
    return next(iter(pack.values()))


def _replaces(kind: Kind, newer: Bundle, older: Bundle) -> bool:
    """Whether one bundle of a kind makes another needless."""
    match kind.sync:
        case Sync.COMPLETE:
            return newer.version > older.version
        case Sync.DELTA:
            assert newer.base is not None, "a delta without a base was refused before"
            return older.base is not None and newer.base > older.base
        case Sync.HYBRID:
            return False
