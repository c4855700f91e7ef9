"""A source that reports its state, and knows what the tables must have of it when all its bundles have come."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.conflation.version import Version

CLUSTERS, POLICIES, COMPLIANCE, CHANGES = KINDS = ("clusters", "policies", "compliance", "changes")
Bundle = Mapping[str, object]
Row = tuple[str, ...]
MOST_ROWS = 4


@dataclass
class Hub:
    """Reports clusters, policies, compliance (which depends on policies, exactly) and changes of it. Every row tells
    its bundle: in ``base`` the version of compliance that it belongs to, in ``needs`` that of the policies."""

    name: str
    rng: random.Random
    newest: dict[str, Version] = field(default_factory=dict)
    """Of each kind the newest version that was reported since the last start."""
    rows: dict[str, dict[Row, Row]] = field(default_factory=dict)
    """By table and key what the newest bundles say."""
    _incarnation: int = 0
    _made: int = 0
    _late: list[Bundle] = field(default_factory=list)
    """What was left out of the last report."""

    def report(self) -> list[Bundle]:
        """What it reports next. What others depend on may come after them, or only with the next report; and now and
        then the hub is started anew."""
        if self._late:
            return [self._late.pop()]
        chance = self.rng.random()
        if COMPLIANCE not in self.newest or chance < 0.03:
            return self.report_all()
        if chance < 0.35:
            return [self._complete(CLUSTERS)]
        if chance < 0.60:
            needed, needs = self._complete(POLICIES), self._complete(COMPLIANCE)
            if chance < 0.45:
                self._late.append(needed)
                return [needs]
            return [needs, needed] if chance < 0.50 else [needed, needs]
        return [self._complete(COMPLIANCE)] if chance < 0.70 else [self._change()]

    def report_all(self, restarted: bool = True) -> list[Bundle]:
        """One bundle of each kind; of a source that was started anew they may come in any order."""
        self._late.clear()
        if restarted:
            self._incarnation += 1
            self.newest.clear()
        bundles = [self._complete(CLUSTERS), self._complete(POLICIES), self._complete(COMPLIANCE), self._change()]
        return self.rng.sample(bundles, len(bundles)) if restarted else bundles

    def _complete(self, kind: str) -> Bundle:
        version = self._next(kind)
        names = self.rng.sample(range(MOST_ROWS), self.rng.randint(1, MOST_ROWS))
        if kind != COMPLIANCE:
            self.rows[kind] = {(f"c{name}",): (self._value(),) for name in names}
            items = [{"id": key, "v": v} for (key,), (v,) in self.rows[kind].items()]
            return self._bundle(kind, version, items)
        needs = self.newest[POLICIES]
        self.rows[kind] = {("p", f"c{name}"): self._compliance(needs, version) for name in names}
        return self._bundle(kind, version, self._items(self.rows[kind]), depends_on=str(needs))

    def _change(self) -> Bundle:
        base = self.newest[COMPLIANCE]
        changed: Row = ("p", f"c{self.rng.randrange(2 * MOST_ROWS)}")
        rows = {changed: self._compliance(self.newest[POLICIES], base)}
        self.rows[COMPLIANCE] |= rows
        return self._bundle(CHANGES, self._next(CHANGES), self._items(rows), base=str(base))

    def _next(self, kind: str) -> Version:
        before = self.newest.get(kind)
        self.newest[kind] = Version(self._incarnation, 0 if before is None else before.generation + 1)
        return self.newest[kind]

    def _value(self) -> str:
        self._made += 1
        return f"value {self._made}"

    def _compliance(self, needs: Version, base: Version) -> Row:
        return (self._value(), f"v{needs}", f"v{base}")

    def _items(self, rows: Mapping[Row, Row]) -> list[dict[str, str]]:
        names = ("policy", "cluster", "v", "needs", "base")
        return [dict(zip(names, (*key, *values), strict=True)) for key, values in rows.items()]

    def _bundle(self, kind: str, version: Version, items: list[dict[str, str]], **more: str) -> Bundle:
        return {"source": self.name, "kind": kind, "version": str(version), **more, "data": {"items": items}}
