"""Conflation as its rules say it, one bundle at a time, with no thought for speed: what the real one is compared with.

It keeps a plain list of all bundles that somebody may still need. After everything that happens it goes through the
list, and takes out what another makes needless.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.conflation.bundle import Bundle
from penstock.conflation.kinds import Kind, Kinds, Match, Sync
from penstock.conflation.version import Version


class PlainUnit:
    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self.needed: list[Bundle] = []
        self.writing: list[Bundle] = []
        self.processed: dict[str, Version] = {}
        self.needless: list[Bundle] = []
        self._failed: dict[str, Version] = {}

    def insert(self, bundle: Bundle) -> None:
        self.needed.append(bundle)
        self._clean()

    def begin(self) -> Sequence[Bundle]:
        if self.writing:
            return []
        for kind in sorted(self._kinds.values(), key=lambda kind: kind.priority):
            ready = []
            for bundle in sorted(self._of(kind), key=lambda bundle: bundle.version):
                if not self.is_met(bundle):
                    break
                ready.append(bundle)
            if ready and (kind.name not in self._failed or ready[-1].version > self._failed[kind.name]):
                self.writing = ready
                self.needed = [bundle for bundle in self.needed if bundle not in ready]
                return ready
        return []

    def succeed(self) -> None:
        newest = self.writing[-1]
        self.processed[newest.kind] = newest.version
        self._failed.pop(newest.kind, None)
        self.writing = []
        self._clean()

    def fail(self) -> None:
        self._failed[self.writing[-1].kind] = self.writing[-1].version
        # They were there before everything that came meanwhile.
        self.needed = [*self.writing, *self.needed]
        self.writing = []
        self._clean()

    def park(self) -> None:
        self.writing = []

    def try_again(self, kind: str) -> None:
        self._failed.pop(kind, None)

    def is_met(self, bundle: Bundle) -> bool:
        needed = self._kinds[bundle.kind].depends_on
        if needed is None:
            return True
        there = self.processed.get(needed.kind)
        if there is None:
            return False
        if needed.implicit:
            return there.incarnation >= bundle.version.incarnation
        wanted = bundle.base if bundle.depends_on is None else bundle.depends_on
        assert wanted is not None
        return there == wanted or (needed.match is Match.AT_LEAST and there > wanted)

    def _of(self, kind: Kind) -> list[Bundle]:
        return [bundle for bundle in self.needed if bundle.kind == kind.name]

    def _clean(self) -> None:
        while (found := next((each for each in reversed(self.needed) if self._is_needless(each)), None)) is not None:
            self.needed.remove(found)
            self.needless.append(found)

    def _is_needless(self, bundle: Bundle) -> bool:
        kind = self._kinds[bundle.kind]
        if bundle.kind in self.processed and bundle.version <= self.processed[bundle.kind]:
            return True
        others = [*self.writing, *self.needed]
        for other in others:
            if other is bundle:
                break
            if (other.kind, other.version) == (bundle.kind, bundle.version):
                return True
        same = [other for other in others if other.kind == bundle.kind]
        if kind.sync is Sync.COMPLETE:
            return any(other.version > bundle.version for other in same)
        if kind.sync is Sync.DELTA:
            assert kind.depends_on is not None
            assert bundle.base is not None
            bases = [other.base for other in same if other.base is not None]
            bases += [other.version for other in others if other.kind == kind.depends_on.kind]
            bases += [version for name, version in self.processed.items() if name == kind.depends_on.kind]
            return any(base > bundle.base for base in bases)
        return False
