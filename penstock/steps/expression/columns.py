"""Values of mixed types, a batch at a time: what expressions compute with.

JSON gives a field another type in every record if it likes. So a column knows the type of each row, and holds integers,
floats and text side by side, each made when first asked for. What a row is never depends on the other rows of its
batch. A column of one row stands for a constant: it goes with columns of any length, as numpy's rules have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.json.arrow_text import quote, spread, text_of, verbatim_values
from penstock.json.compare_numbers import as_json, number_key
from penstock.json.find import Found
from penstock.json.read_numbers import numbers
from penstock.json.tokens import ABSENT, FALSE, Kind
from penstock.json.tokens import FLOAT as JSON_FLOAT
from penstock.json.tokens import INT as JSON_INT
from penstock.json.tokens import NULL as JSON_NULL
from penstock.json.tokens import TRUE as JSON_TRUE
from penstock.steps.expression.tree import Constant, Written

NULL, BOOLEAN, INT, FLOAT, TEXT = range(5)

Types = npt.NDArray[np.int8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
_Number = TypeVar("_Number", np.int8, np.int64, np.float64, np.bool_)


class Column:
    """The base: columns that are computed say their ``types`` and fill what those types need.

    ``ints`` counts where the type is INT or BOOLEAN, ``floats`` where it is a number, ``strings`` where it is TEXT;
    elsewhere they hold anything. ``plain``, ``spelling`` and ``exact`` are given where doubles are known to the last
    digit.
    """

    def __init__(
        self,
        types: Types,
        ints: Ints | None = None,
        floats: Floats | None = None,
        strings: pa.StringArray | None = None,
        plain: Flags | None = None,
        spelling: Callable[[int], str | None] | None = None,
        exact: Flags | None = None,
    ) -> None:
        self._types, self._ints, self._floats, self._strings = types, ints, floats, strings
        self._plain, self._spelling, self._exact = plain, spelling, exact

    def __len__(self) -> int:
        return len(self._types)

    @property
    def types(self) -> Types:
        return self._types

    @property
    def ints(self) -> Ints:
        return self._ints if self._ints is not None else np.zeros(len(self), np.int64)

    @property
    def floats(self) -> Floats:
        if self._floats is None:
            return self.ints.astype(np.float64)
        return self._floats if self._ints is None else np.where(self.types == INT, self.ints, self._floats)

    @property
    def strings(self) -> pa.StringArray:
        return self._strings if self._strings is not None else pa.repeat("", len(self))

    @property
    def plain(self) -> Flags:
        """Where the number's double is as good as the number: two that are plain are equal if their doubles are."""
        if self._plain is not None:
            return self._plain
        plain: Flags = (self.types != INT) | ((self.ints >= -(2**53)) & (self.ints <= 2**53))
        return plain

    @property
    def exact(self) -> Flags:
        """Where a number is known to the last digit. The others are doubles that stand for what they are nearest to."""
        if self._exact is not None:
            return self._exact
        exact: Flags = self.types != FLOAT
        return exact

    def spelling(self, row: int) -> str | None:
        """The number as it is written; ``None`` for a double that is not ``exact``, which stands for itself."""
        if self._spelling is not None:
            return self._spelling(row)
        return None if self.types[row] == FLOAT else str(self.ints[row])

    @property
    def nulls(self) -> Flags:
        nulls: Flags = self.types == NULL
        return nulls

    @property
    def text(self) -> pa.StringArray:
        """Every row that is not null as text: strings as they are, other values as JSON writes them."""
        return self._written(self.strings)

    @property
    def json(self) -> pa.BinaryArray:
        """Every row as JSON text."""
        strings = quote(self.strings) if (self.types == TEXT).any() else pa.repeat(pa.scalar(b""), len(self))
        written = self._written(strings.cast(pa.string())).cast(pa.binary())
        return pc.if_else(pa.array(self.nulls), pa.scalar(b"null"), written)

    def has(self, *types: int) -> bool:
        """Whether any row is of one of these types."""
        return bool(np.isin(self.types, types).any())

    def _written(self, strings: pa.StringArray) -> pa.StringArray:
        types = self.types
        result = strings
        if self.has(INT):
            result = pc.if_else(pa.array(types == INT), pc.cast(pa.array(self.ints), pa.string()), result)
        if self.has(FLOAT):
            result = pc.if_else(pa.array(types == FLOAT), _float_text(self.floats), result)
        if self.has(BOOLEAN):
            words = pc.if_else(pa.array(self.ints != 0), "true", "false")
            result = pc.if_else(pa.array(types == BOOLEAN), words, result)
        return result


class FieldColumn(Column):
    """A field of the data. Arrays and objects are their JSON text; a missing field is null."""

    def __init__(self, found: Found, path: int) -> None:
        self._found, self._path = found, path

    def __len__(self) -> int:
        return len(self._found.valid)

    @cached_property
    def nulls(self) -> Flags:
        kind = self._found.kind[:, self._path]
        absent: Flags = (kind == ABSENT) | (kind == JSON_NULL)
        return absent

    @cached_property
    def types(self) -> Types:
        return _TYPE_OF_KIND[self._numbers[0]]

    @cached_property
    def ints(self) -> Ints:
        kinds, ints, _, _ = self._numbers
        return np.where(kinds == JSON_TRUE, 1, ints)

    @property
    def floats(self) -> Floats:
        kinds, _, floats, _ = self._numbers
        return np.where(kinds == JSON_TRUE, 1.0, floats)

    @property
    def plain(self) -> Flags:
        return self._numbers[3]

    @property
    def exact(self) -> Flags:
        return np.ones(len(self), np.bool_)

    def spelling(self, row: int) -> str | None:
        if self.types[row] == BOOLEAN:
            return str(self.ints[row])
        start, end = self._found.value_start[row, self._path], self._found.value_end[row, self._path]
        return self._found.buffer[start:end].tobytes().decode()

    @cached_property
    def strings(self) -> pa.StringArray:
        return text_of(self._found, self._path)

    @property
    def text(self) -> pa.StringArray:
        return self.strings

    @property
    def json(self) -> pa.BinaryArray:
        return pc.fill_null(verbatim_values(self._found, self._path), b"null")

    @cached_property
    def _numbers(self) -> tuple[Types, Ints, Floats, Flags]:
        return numbers(self._found, self._path)


class Chosen(Column):
    """Per row the value of one of several columns, exactly as it stands there."""

    def __init__(self, which: npt.NDArray[np.int64], columns: Sequence[Column]) -> None:
        self._which, self._columns = which, columns

    def __len__(self) -> int:
        return len(self._which)

    @cached_property
    def types(self) -> Types:
        return self._choose([column.types for column in self._columns])

    @cached_property
    def ints(self) -> Ints:
        return self._choose([column.ints for column in self._columns])

    @cached_property
    def floats(self) -> Floats:
        return self._choose([column.floats for column in self._columns])

    @cached_property
    def plain(self) -> Flags:
        return self._choose([column.plain for column in self._columns])

    @cached_property
    def exact(self) -> Flags:
        return self._choose([column.exact for column in self._columns])

    def spelling(self, row: int) -> str | None:
        column: Column = self._columns[self._which[row]]
        return column.spelling(row % len(column))

    @cached_property
    def strings(self) -> pa.StringArray:
        return self._pick([column.strings for column in self._columns])

    @property
    def text(self) -> pa.StringArray:
        return self._pick([column.text for column in self._columns])

    @property
    def json(self) -> pa.BinaryArray:
        return self._pick([column.json for column in self._columns])

    def _choose(self, arrays: Sequence[npt.NDArray[_Number]]) -> npt.NDArray[_Number]:
        result: npt.NDArray[_Number] = np.empty(len(self), arrays[0].dtype)
        for place, array in enumerate(arrays):
            here = self._which == place
            result[here] = array[here] if len(array) == len(here) else array[0]
        return result

    def _pick(self, arrays: Sequence[pa.Array]) -> pa.Array:
        if len(arrays) == 1:
            return spread(arrays[0], len(self))
        return pc.choose(pa.array(self._which), *(spread(array, len(self)) for array in arrays))


class ComputedColumn(Column):
    """Numbers that came out of a calculation: integers, doubles, and those that only their digits can hold.

    ``spelled`` has the latter by their rows. Of the doubles, those that are ``exact`` are what they are written as.
    """

    def __init__(
        self, types: Types, ints: Ints, floats: Floats, exact: Flags, plain: Flags, spelled: Mapping[int, str]
    ) -> None:
        super().__init__(types, ints, floats, plain=plain, exact=exact)
        self._spelled = spelled

    def spelling(self, row: int) -> str | None:
        if row in self._spelled:
            return self._spelled[row]
        if self.types[row] == FLOAT:
            return repr(float(self.floats[row])) if self.exact[row] else None
        return str(self.ints[row])

    def _written(self, strings: pa.StringArray) -> pa.StringArray:
        written = super()._written(strings)
        if not self._spelled:
            return written
        rows = sorted(self._spelled)
        here = np.zeros(len(self), np.bool_)
        here[rows] = True
        return pc.replace_with_mask(written, pa.array(here), pa.array([self._spelled[row] for row in rows]))


class WrittenColumn(Column):
    """A number of an expression, exactly as it stands there."""

    def __init__(self, number: Written) -> None:
        self._json = as_json(number.text)
        types, floats = np.array([FLOAT], np.int8), np.array([float(number.text)])
        no, yes = np.array([False]), np.array([True])
        super().__init__(types, floats=floats, plain=no, spelling=lambda row: self._json, exact=yes)

    @property
    def text(self) -> pa.StringArray:
        return pa.array([self._json])

    @property
    def json(self) -> pa.BinaryArray:
        return pa.array([self._json.encode()])


def constant(value: Constant) -> Column:
    if value is None:
        return Column(np.array([NULL], np.int8))
    if isinstance(value, bool):
        return truths(np.array([value]), np.array([True]))
    if isinstance(value, int):
        return Column(np.array([INT], np.int8), np.array([value], np.int64))
    if isinstance(value, float):
        text = repr(value)
        size, digits = number_key(text)[1:]
        plain = len(digits) <= 15 and abs(size) <= 300
        floats, flags = np.array([value]), np.array([plain])
        types, exact = np.array([FLOAT], np.int8), np.array([True])
        return Column(types, floats=floats, plain=flags, spelling=lambda row: text, exact=exact)
    if isinstance(value, Written):
        return WrittenColumn(value)
    return texts(pa.array([value]), np.array([True]))


def truths(values: Flags, known: Flags) -> Column:
    """Booleans, null where not ``known``."""
    values, known = np.broadcast_arrays(values, known)
    return Column(np.where(known, BOOLEAN, NULL).astype(np.int8), values.astype(np.int64))


def texts(strings: pa.StringArray, known: Flags) -> Column:
    """Text, null where not ``known``."""
    return Column(np.where(known, TEXT, NULL).astype(np.int8), strings=pc.fill_null(strings, ""))


def _float_text(floats: Floats) -> pa.StringArray:
    """The shortest text that reads back as the same double, always with a point or an exponent."""
    text = pc.cast(pa.array(floats), pa.string())
    whole = pc.match_substring_regex(text, r"^-?[0-9]+$")
    return pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)


_TYPE_OF_KIND = np.full(len(Kind), TEXT, np.int8)
_TYPE_OF_KIND[[ABSENT, JSON_NULL]] = NULL
_TYPE_OF_KIND[[FALSE, JSON_TRUE]] = BOOLEAN
_TYPE_OF_KIND[JSON_INT] = INT
_TYPE_OF_KIND[JSON_FLOAT] = FLOAT
