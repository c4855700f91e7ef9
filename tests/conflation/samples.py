"""Kinds to try conflation with, and a short way to write down what happens to a unit.

``+CC0.7@0.2`` is a bundle of kind CC with version 0.7 that depends on version 0.2; ``+D0.1^0.3`` a delta on base 0.3.
``>`` begins to write, ``.`` ends that well, ``x`` in a failure, ``p`` gives it up; ``rA`` lets kind A be tried again;
``!`` writes all that is ready.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.conflation.bundle import Bundle, Place, Unit
from penstock.conflation.kinds import Dependency, Kind, Kinds, Match, Sync
from penstock.conflation.unit_state import UnitState, Work
from penstock.conflation.version import parse_version

KINDS = Kinds(
    [
        Kind("A", 0),
        Kind("C", 1),
        Kind("CC", 2, depends_on=Dependency("C")),
        Kind("D", 3, Sync.DELTA, Dependency("CC")),
        Kind("L", 4, depends_on=Dependency("C", Match.AT_LEAST)),
        Kind("I", 5, depends_on=Dependency("A", implicit=True)),
        Kind("H", 6, Sync.HYBRID),
    ]
)

_BUNDLE = re.compile(r"(?P<kind>[A-Z]+)(?P<version>\d+\.\d+)(@(?P<needs>\d+\.\d+))?(\^(?P<base>\d+\.\d+))?")


def bundle(text: str, offset: int = 0, source: str = "hub1") -> Bundle:
    found = _BUNDLE.fullmatch(text)
    assert found is not None, text
    needs, base = found["needs"], found["base"]
    return Bundle(
        source,
        found["kind"],
        parse_version(found["version"]),
        Place(0, offset),
        parse_version(needs) if needs else None,
        parse_version(base) if base else None,
    )


def told(bundles: Sequence[Bundle]) -> str:
    """Bundles as text: ``C0.1``, and a pack as ``D0.1+0.2``."""
    return bundles[0].kind + "+".join(str(each.version) for each in bundles)


class Story:
    """Plays what a text says."""

    def __init__(self, text: str, state: UnitState | None = None) -> None:
        self.state = state or UnitState(Unit("hub1"), KINDS)
        self.written: list[str] = []
        self._work: Work | None = None
        self._offset = 0
        for word in text.split():
            self._play(word)

    @property
    def waiting(self) -> list[str]:
        return [told([each.bundle]) for each in self.state.waiting()]

    @property
    def reasons(self) -> list[str]:
        return [each.reason for each in self.state.waiting()]

    @property
    def conflated(self) -> list[str]:
        return sorted(told([each]) for each in self.state.conflated)

    def _play(self, word: str) -> None:
        match word[0]:
            case "+":
                self.state.insert(bundle(word[1:], self._offset))
                self._offset += 1
            case ">":
                self._work = self.state.begin_next() or self._work
            case ".":
                self._end_well()
            case "x":
                self.state.note_failed("refused")
            case "p":
                self.state.note_parked("refused too often")
            case "r":
                self.state.try_again(word[1:])
            case "!":
                while (work := self.state.begin_next()) is not None:
                    self._work = work
                    self._end_well()

    def _end_well(self) -> None:
        assert self._work is not None
        self.state.note_written()
        self.written.append(told(self._work.bundles))
