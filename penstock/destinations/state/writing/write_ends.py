"""How the write of a bundle, or of a pack, may end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from penstock.conflation.unit_state import UnitState
from penstock.destinations.state.store.contract import RowsChanged


class Away(Exception):
    """The database cannot be reached: there is no point in trying the next unit."""


class WriteEnd(ABC):
    """Base of the ends."""

    @abstractmethod
    def tell(self, state: UnitState) -> None:
        """Tell the unit that began the write."""


@dataclass(frozen=True)
class Written(WriteEnd):
    rows: RowsChanged
    at: float
    """When, in seconds since 1970."""

    def tell(self, state: UnitState) -> None:
        state.note_written()


@dataclass(frozen=True)
class NotTaken(WriteEnd):
    """It is tried again later."""

    why: str
    due: float
    """In how many seconds."""

    def tell(self, state: UnitState) -> None:
        state.note_failed(self.why)


@dataclass(frozen=True)
class GivenUp(WriteEnd):
    code: str
    why: str

    def tell(self, state: UnitState) -> None:
        state.note_parked(self.why)


@dataclass(frozen=True)
class Divided(WriteEnd):
    """Something of a pack is refused: nothing is written, and its bundles are tried one by one."""

    why: str

    def tell(self, state: UnitState) -> None:
        state.divide()


@dataclass(frozen=True)
class Separated(WriteEnd):
    """It was to be written together with others, and something of them was not taken: it is tried by itself."""

    def tell(self, state: UnitState) -> None:
        state.return_begun()
