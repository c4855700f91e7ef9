"""Values of mixed kinds, one per row, and truths: what conditions compute with.

An array of one row stands for the same in every row: it goes with arrays of any length, as numpy's rules have it. So
each part of a column is as long as the table, or one row long.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.otlp.span_table import Flags, Numbers, ValueKind, Values
from penstock.sampling.conditions.ottl.syntax_tree import Constant

Kinds = npt.NDArray[np.uint8]
Doubles = npt.NDArray[np.float64]
_Item = TypeVar("_Item", bound=np.generic)

NONE: Flags = np.zeros(1, np.bool_)
NO_INTEGERS: Numbers = np.zeros(1, np.int64)
NO_DOUBLES: Doubles = np.zeros(1, np.float64)
NO_TEXTS = pa.nulls(1, pa.string())
NO_OCTETS = pa.nulls(1, pa.binary())


class Truth(NamedTuple):
    """Where something is true, and where it cannot be said; never both."""

    true: Flags
    failed: Flags


@dataclass(frozen=True)
class Column:
    """What does not belong to a row's kind is anything."""

    kind: Kinds
    """A ``ValueKind`` each; ``ABSENT`` and ``EMPTY`` are both nil."""
    integers: Numbers = field(default_factory=lambda: NO_INTEGERS)
    """Of ``INT``, and 0 or 1 of ``BOOL``."""
    doubles: Doubles = field(default_factory=lambda: NO_DOUBLES)
    texts: pa.StringArray = field(default_factory=lambda: NO_TEXTS)
    octets: pa.BinaryArray = field(default_factory=lambda: NO_OCTETS)
    """Of ``BYTES``; null where they are not known."""
    failed: Flags = field(default_factory=lambda: NONE)
    """Where there is no value because of an error."""

    def has(self, kind: ValueKind) -> bool:
        return bool((self.kind == kind).any())

    def is_kind(self, kind: ValueKind) -> Flags:
        found: Flags = self.kind == kind
        return found

    @property
    def is_nil(self) -> Flags:
        nil: Flags = (self.kind == ValueKind.ABSENT) | (self.kind == ValueKind.EMPTY)
        return nil

    def __len__(self) -> int:
        lengths = {len(self.kind), len(self.integers), len(self.doubles), len(self.texts), len(self.octets)}
        lengths = (lengths | {len(self.failed)}) - {1}
        return lengths.pop() if lengths else 1

    def take(self, rows: Numbers) -> Column:
        """The values of these rows."""
        return Column(
            _taken(self.kind, rows),
            _taken(self.integers, rows),
            _taken(self.doubles, rows),
            self.texts if len(self.texts) == 1 else self.texts.take(pa.array(rows)),
            self.octets if len(self.octets) == 1 else self.octets.take(pa.array(rows)),
            _taken(self.failed, rows),
        )

    def failing(self, where: Flags) -> Column:
        """The same, with errors there too."""
        return replace(self, failed=self.failed | where) if where.any() else self


def of_values(values: Values) -> Column:
    return Column(values.kind, values.integers, values.doubles, values.texts)


def of_integers(integers: Numbers) -> Column:
    return Column(every(ValueKind.INT), integers)


def of_texts(texts: pa.StringArray) -> Column:
    """Null is nil."""
    if not texts.null_count:
        return Column(every(ValueKind.STRING), texts=texts)
    known = texts.is_valid().to_numpy(zero_copy_only=False)
    return Column(np.where(known, ValueKind.STRING, ValueKind.ABSENT).astype(np.uint8), texts=texts)


def of_octets(octets: pa.BinaryArray) -> Column:
    return Column(every(ValueKind.BYTES), octets=octets)


def of_truth(truth: Truth) -> Column:
    return Column(every(ValueKind.BOOL), truth.true.astype(np.int64), failed=truth.failed)


def of_constant(value: Constant) -> Column:
    match value:
        case None:
            return Column(every(ValueKind.ABSENT))
        case bool():
            return Column(every(ValueKind.BOOL), np.array([value], np.int64))
        case int():
            return of_integers(np.array([value], np.int64))
        case float():
            return Column(every(ValueKind.DOUBLE), doubles=np.array([value]))
        case str():
            return of_texts(pa.array([value], pa.string()))
        case bytes():
            return of_octets(pa.array([value], pa.binary()))


def every(kind: ValueKind) -> Kinds:
    """The kind of a column whose rows are all of it."""
    return np.array([kind], np.uint8)


def spread(array: pa.Array, length: int) -> pa.Array:
    """An array of that length, also of one that stands for every row."""
    return array if len(array) == length else pa.repeat(array[0], length)


def _taken(array: npt.NDArray[_Item], rows: Numbers) -> npt.NDArray[_Item]:
    return array if len(array) == 1 else array[rows]
