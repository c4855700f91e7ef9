"""Bundles that wait in the ledger: how the ledger knows them, and what they and new bundles mean for each other.

All bundles of one source and kind wait under one name. Of complete bundles the newest counts, whether it waits or
comes now. Deltas and hybrids must not overtake those that wait: they wait with them, unless a newer base makes the
older ones needless.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from penstock.conflation.bundle import Bundle, Place, Processed
from penstock.conflation.kinds import Kind, Kinds, Sync
from penstock.conflation.version import Version, parse_version
from penstock.destinations.contract import GROUP_SEPARATOR

SourceKind = tuple[str, str]


def group_name(source: str, kind: str) -> str:
    return f"{source}{GROUP_SEPARATOR}{kind}"


def source_and_kind(group: str) -> SourceKind:
    source, _, kind = group.partition(GROUP_SEPARATOR)
    return source, kind


@dataclass(frozen=True)
class WaitingPack:
    """A complete bundle that waits, or the deltas on one base, or hybrids, that began to wait together."""

    source: str
    kind: str
    version: Version
    """The newest."""
    base: Version | None
    places: tuple[Place, ...]
    """Of each partition the first."""

    @classmethod
    def of(cls, bundles: Sequence[Bundle]) -> Self:
        """Bundles of one source and kind; what adds up has one base."""
        newest = max(bundles, key=lambda bundle: bundle.version)
        first: dict[int, Place] = {}
        for place in sorted((bundle.place for bundle in bundles), reverse=True):
            first[place.partition] = place
        return cls(newest.source, newest.kind, newest.version, newest.base, tuple(sorted(first.values())))

    @classmethod
    def parse(cls, group: str, about: str) -> Self:
        facts = json.loads(about)
        base = None if facts["base"] is None else parse_version(facts["base"])
        places = tuple(Place(*place) for place in facts["places"])
        return cls(*source_and_kind(group), parse_version(facts["version"]), base, places)

    @property
    def group(self) -> str:
        return group_name(self.source, self.kind)

    @property
    def about(self) -> str:
        """The same text for the same bundles."""
        base = None if self.base is None else str(self.base)
        return json.dumps({"version": str(self.version), "base": base, "places": self.places})


@dataclass
class Elsewhere:
    """What waits elsewhere, beside the bundles of a batch."""

    superseded: list[WaitingPack] = field(default_factory=list)
    """What nobody needs any more."""
    left: list[WaitingPack] = field(default_factory=list)
    """What is still needed."""
    conflated: list[Bundle] = field(default_factory=list)
    """New bundles that nobody needs, because newer ones wait."""

    def held(self, kinds: Kinds) -> set[SourceKind]:
        """What must not be overtaken."""
        return {(each.source, each.kind) for each in self.left if kinds[each.kind].sync.adds_up}

    def without_conflated(self, new: Sequence[Bundle]) -> list[Bundle]:
        conflated = {bundle.place for bundle in self.conflated}
        return [bundle for bundle in new if bundle.place not in conflated]

    @property
    def places(self) -> list[Place]:
        """Where what is still needed begins."""
        return [place for each in self.left for place in each.places]


def compare_with_waiting(
    kinds: Kinds,
    new: Sequence[Bundle],
    waiting_groups: Mapping[str, Sequence[str]],
    processed: Mapping[SourceKind, Processed],
    untouchable: Collection[SourceKind] = (),
) -> Elsewhere:
    """What new bundles and those that wait make of each other. ``untouchable``: what may be at the database by now."""
    waiting: dict[SourceKind, list[WaitingPack]] = {}
    for group, abouts in waiting_groups.items():
        # What waits of a kind that the config no longer has concerns nobody here.
        if source_and_kind(group)[1] in kinds:
            waiting[source_and_kind(group)] = [WaitingPack.parse(group, about) for about in abouts]
    come: dict[SourceKind, list[Bundle]] = {}
    for bundle in new:
        come.setdefault((bundle.source, bundle.kind), []).append(bundle)
    found = Elsewhere()
    for key, packs in waiting.items():
        kind, bundles = kinds[key[1]], come.get(key, [])
        least = None if key in untouchable else _least_needed(kind, key[0], come, waiting, processed)
        for pack in packs:
            needless = least is not None and _measure(kind, pack) < least
            # What was written since it began to wait is written, and says so when it comes again.
            written = key in processed and pack.version <= processed[key].version
            (found.superseded if needless and not written else found.left).append(pack)
        left = [pack for pack in found.left if (pack.source, pack.kind) == key]
        found.conflated += [bundle for bundle in bundles if any(_is_needless(kind, bundle, pack) for pack in left)]
    return found


def _measure(kind: Kind, pack: WaitingPack) -> Version:
    """What tells whether a pack is too old: its version, or the base of deltas."""
    return pack.base if kind.sync is Sync.DELTA and pack.base is not None else pack.version


def _least_needed(
    kind: Kind,
    source: str,
    come: Mapping[SourceKind, Sequence[Bundle]],
    waiting: Mapping[SourceKind, Sequence[WaitingPack]],
    processed: Mapping[SourceKind, Processed],
) -> Version | None:
    """What is older is needless; ``None`` if nothing is."""
    new = come.get((source, kind.name), ())
    match kind.sync:
        case Sync.COMPLETE:
            return max((each.version for each in new), default=None)
        case Sync.DELTA:
            assert kind.depends_on is not None, "a delta depends on what it changes"
            base = (source, kind.depends_on.kind)
            known = [each.base for each in new if each.base is not None]
            known += [each.version for each in come.get(base, ())]
            known += [each.version for each in waiting.get(base, ())]
            known += [processed[base].version] if base in processed else []
            return max(known, default=None)
        case Sync.HYBRID:
            return None


def _is_needless(kind: Kind, bundle: Bundle, waiting: WaitingPack) -> bool:
    """Whether a new bundle is needless beside one of its kind that waits."""
    match kind.sync:
        case Sync.COMPLETE:
            return bundle.version <= waiting.version
        case Sync.DELTA:
            older = bundle.base is not None and waiting.base is not None and bundle.base < waiting.base
            return older or bundle.version == waiting.version
        case Sync.HYBRID:
            return bundle.version == waiting.version
