"""The kinds of state that sources report, and which kind depends on which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class Sync(StrEnum):
    COMPLETE = "complete"
    """A bundle has all objects of the kind: only the newest matters."""
    DELTA = "delta"
    """A bundle has the objects that changed since a complete bundle of another kind, its base."""
    HYBRID = "hybrid"
    """A bundle says what to create, update, delete or bring in line."""

    @property
    def adds_up(self) -> bool:
        """Whether several bundles that wait are written together, because each has what others have not."""
        return self is not Sync.COMPLETE


class Match(StrEnum):
    EXACT = "exact"
    AT_LEAST = "at_least"


@dataclass(frozen=True)
class Dependency:
    """What must have been written before a bundle of some kind."""

    kind: str
    match: Match = Match.EXACT
    implicit: bool = False
    """Bundles do not name a version: any of the same incarnation, or a later one, will do."""


@dataclass(frozen=True)
class Kind:
    name: str
    priority: int
    """The lowest is written first."""
    sync: Sync = Sync.COMPLETE
    depends_on: Dependency | None = None
    group: str = ""
    """Kinds of one group and source are a unit: written one after the other, in their order."""


class Kinds(Mapping[str, Kind]):
    """All kinds of a destination, by name, the most urgent first. Raises ``ValueError`` for kinds that contradict each
    other."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = {kind.name: kind for kind in sorted(kinds, key=lambda kind: kind.priority)}
        if len(self._kinds) != len(kinds):
            twice = next(kind.name for kind in kinds if sum(kind.name == other.name for other in kinds) > 1)
            raise ValueError(f"the kind '{twice}' is declared twice")
        for kind in kinds:
            self._check(kind)

    def __getitem__(self, name: str) -> Kind:
        return self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    @cached_property
    def dependents(self) -> Mapping[str, Sequence[Kind]]:
        """The kinds that depend on each kind."""
        return {
            name: [kind for kind in self.values() if kind.depends_on is not None and kind.depends_on.kind == name]
            for name in self
        }

    @cached_property
    def deltas(self) -> Mapping[str, Sequence[Kind]]:
        """The kinds whose bundles are changes of each kind."""
        return {name: [kind for kind in kinds if kind.sync is Sync.DELTA] for name, kinds in self.dependents.items()}

    def _check(self, kind: Kind) -> None:
        needed = kind.depends_on
        if needed is None:
            if kind.sync is Sync.DELTA:
                raise ValueError(f"the kind '{kind.name}' is a delta: say in depends_on which kind it changes")
            return
        base = self.get(needed.kind)
        if base is None:
            raise ValueError(f"the kind '{kind.name}' depends on '{needed.kind}', which is not declared")
        if base.group != kind.group:
            raise ValueError(f"the kind '{kind.name}' depends on '{needed.kind}', which is in another group")
        if base.priority >= kind.priority:
            raise ValueError(
                f"the kind '{kind.name}' depends on '{needed.kind}': give it a higher priority number, so that it is"
                " written later"
            )
        if kind.sync is Sync.DELTA and base.sync is not Sync.COMPLETE:
            raise ValueError(
                f"the kind '{kind.name}' is a delta, and '{base.name}', which it changes, is {base.sync}: only a"
                " complete bundle has all that older changes said"
            )
        if kind.sync is Sync.DELTA and needed.implicit:
            raise ValueError(f"the kind '{kind.name}' is a delta: its bundles name their base, so implicit is wrong")
