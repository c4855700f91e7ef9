"""The parts of a compiled condition. Each says what it needs, and answers for all rows at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.otlp.span_table import Flags, Needs, ValueKind
from penstock.sampling.conditions.distinct_texts import matches_any
from penstock.sampling.conditions.ottl.calculate_values import calculate, negate
from penstock.sampling.conditions.ottl.compare_values import compare
from penstock.sampling.conditions.ottl.condition_rows import NO_NEEDS, Rows, Test, Value
from penstock.sampling.conditions.ottl.convert_values import to_texts
from penstock.sampling.conditions.ottl.syntax_tree import Constant
from penstock.sampling.conditions.ottl.value_columns import (
    NONE,
    Column,
    Truth,
    of_constant,
    of_texts,
    of_truth,
    spread,
)


@dataclass(frozen=True)
class Given:
    """A value that is the same in every row."""

    value: Constant
    needs: Needs = NO_NEEDS

    def column(self, rows: Rows) -> Column:
        return of_constant(self.value)


@dataclass(frozen=True)
class Converted:
    """A value that is made from another one."""

    convert: Callable[[Column], Column]
    value: Value

    @property
    def needs(self) -> Needs:
        return self.value.needs

    def column(self, rows: Rows) -> Column:
        return self.convert(self.value.column(rows))


@dataclass(frozen=True)
class Calculated:
    """``first``, then each of ``others`` with its operator, from left to right."""

    first: Value
    others: tuple[tuple[str, Value], ...]

    @property
    def needs(self) -> Needs:
        return all_needs(self.first, *(value for _, value in self.others))

    def column(self, rows: Rows) -> Column:
        result = self.first.column(rows)
        for symbol, value in self.others:
            result = calculate(symbol, result, value.column(rows))
        return result


@dataclass(frozen=True)
class Concatenated:
    """Texts one behind the other, with ``delimiter`` between them; nil is written ``<nil>``."""

    values: tuple[Value, ...]
    delimiter: str

    @property
    def needs(self) -> Needs:
        return all_needs(*self.values)

    def column(self, rows: Rows) -> Column:
        columns = [to_texts(value.column(rows)) for value in self.values]
        length = next((len(column) for column in columns if len(column) != 1), 1)
        texts = [spread(_with_nil(column), length) for column in columns]
        joined = pc.binary_join_element_wise(*texts, self.delimiter) if texts else pa.array([""])
        return of_texts(joined).failing(reduce(or_, (column.failed for column in columns), NONE))


@dataclass(frozen=True)
class AsValue:
    """A test whose answer is a value."""

    test: Test

    @property
    def needs(self) -> Needs:
        return self.test.needs

    def column(self, rows: Rows) -> Column:
        return of_truth(self.test.truth(rows))


@dataclass(frozen=True)
class Always:
    """True, or false, of every row."""

    answer: bool
    needs: Needs = NO_NEEDS

    def truth(self, rows: Rows) -> Truth:
        return Truth(np.array([self.answer]), NONE)


@dataclass(frozen=True)
class Compared:
    symbol: str
    left: Value
    right: Value

    @property
    def needs(self) -> Needs:
        return self.left.needs | self.right.needs

    def truth(self, rows: Rows) -> Truth:
        return compare(self.symbol, self.left.column(rows), self.right.column(rows))


@dataclass(frozen=True)
class AllOf:
    """True if all are. A row is asked until one is false or has an error; that error is its answer."""

    tests: tuple[Test, ...]

    @property
    def needs(self) -> Needs:
        return all_needs(*self.tests)

    def truth(self, rows: Rows) -> Truth:
        true, failed = self.tests[0].truth(rows)
        for test in self.tests[1:]:
            if not true.any():
                break
            next_true, next_failed = test.truth(rows)
            true, failed = true & next_true, failed | (true & next_failed)
        return Truth(true, failed)


@dataclass(frozen=True)
class AnyOf:
    """True if one is. A row is asked until one is true or has an error; that error is its answer."""

    tests: tuple[Test, ...]

    @property
    def needs(self) -> Needs:
        return all_needs(*self.tests)

    def truth(self, rows: Rows) -> Truth:
        true, failed = self.tests[0].truth(rows)
        for test in self.tests[1:]:
            asked = ~(true | failed)
            if not asked.any():
                break
            next_true, next_failed = test.truth(rows)
            true, failed = true | (asked & next_true), failed | (asked & next_failed)
        return Truth(true, failed)


@dataclass(frozen=True)
class NotTrue:
    test: Test

    @property
    def needs(self) -> Needs:
        return self.test.needs

    def truth(self, rows: Rows) -> Truth:
        true, failed = self.test.truth(rows)
        return Truth(~(true | failed), failed)


@dataclass(frozen=True)
class IsOfKind:
    value: Value
    kind: ValueKind

    @property
    def needs(self) -> Needs:
        return self.value.needs

    def truth(self, rows: Rows) -> Truth:
        column = self.value.column(rows)
        return Truth(column.is_kind(self.kind) & ~column.failed, column.failed)


@dataclass(frozen=True)
class Matches:
    """The regular expression is found in the value's text; in nil it is not."""

    value: Value
    pattern: str

    @property
    def needs(self) -> Needs:
        return self.value.needs

    def truth(self, rows: Rows) -> Truth:
        column = to_texts(self.value.column(rows))
        true = matches_any(column.texts, (self.pattern,)) & ~column.is_nil
        return Truth(true & ~column.failed, column.failed)


@dataclass(frozen=True)
class HasEdge:
    """The string begins, or ends, with ``edge``. What is no string is an error."""

    value: Value
    edge: str
    at_end: bool

    @property
    def needs(self) -> Needs:
        return self.value.needs

    def truth(self, rows: Rows) -> Truth:
        column = self.value.column(rows)
        found = (pc.ends_with if self.at_end else pc.starts_with)(column.texts, self.edge)
        hits: Flags = found.fill_null(False).to_numpy(zero_copy_only=False)
        failed = column.failed | ~column.is_kind(ValueKind.STRING)
        return Truth(hits & ~failed, failed)


@dataclass(frozen=True)
class HasNoParent:
    """The span has no parent."""

    needs: Needs = NO_NEEDS

    def truth(self, rows: Rows) -> Truth:
        rootless = rows.spans.parent_id == 0
        return Truth(rootless if rows.events is None else rootless[rows.events.span], NONE)


def negated_value(value: Value) -> Value:
    return Converted(negate, value)


def all_needs(*parts: Value | Test) -> Needs:
    return reduce(or_, (part.needs for part in parts), NO_NEEDS)


def _with_nil(column: Column) -> pa.StringArray:
    if not column.is_nil.any():
        return column.texts
    length = len(column)
    nil = pa.array(np.array(np.broadcast_to(column.is_nil, length)))
    return pc.if_else(nil, "<nil>", spread(column.texts, length))
