"""Conditions on one attribute. It is looked for among those of the span and those of its resource."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.otlp.span_table import Flags, Needs, SpanTable, ValueKind, Values
from penstock.sampling.conditions.distinct_texts import check_pattern, matches_any

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class StringAttribute:
    """The attribute is a string and one of ``values``, or one of them, as a regular expression, is found in it.

    Regular expressions are not anchored. The empty string of a span meets nothing; of a resource, it meets a regular
    expression that matches it. An empty string among plain ``values`` stands for nothing.
    """

    key: str
    values: tuple[str, ...]
    regex: bool = False

    def __post_init__(self) -> None:
        _check_key(self.key)
        if not self.values:
            raise ValueError("expected at least one value")
        for value in self.values if self.regex else ():
            check_pattern(value)

    @property
    def needs(self) -> Needs:
        return _needs(self.key)

    def met(self, spans: SpanTable) -> Flags:
        own = spans.attributes[self.key].texts
        of_span = self._hits(own)
        if self.regex:
            of_span &= pc.greater(pc.binary_length(own), 0).fill_null(False).to_numpy(zero_copy_only=False)
        return of_span | self._hits(spans.resource_attributes[self.key].texts)

    def _hits(self, texts: pa.StringArray) -> Flags:
        if self.regex:
            return matches_any(texts, self.values)
        wanted = pa.array([value for value in self.values if value], pa.string())
        # Arrow's own array is not writable.
        hits: Flags = pc.is_in(texts, wanted).to_numpy(zero_copy_only=False).copy()
        return hits


@dataclass(frozen=True)
class NumericAttribute:
    """The attribute is an integer, and neither below ``min_value`` nor above ``max_value``."""

    key: str
    min_value: int | None = None
    max_value: int | None = None

    def __post_init__(self) -> None:
        _check_key(self.key)
        for name, bound in (("min_value", self.min_value), ("max_value", self.max_value)):
            if bound is not None and not _SMALLEST <= bound <= _LARGEST:
                raise ValueError(f"{name} must be an integer of 64 bits, not {bound}")
        if self.min_value is None and self.max_value is None:
            raise ValueError("expected min_value, max_value or both")
        if self._low > self._high:
            raise ValueError(f"min_value {self._low} is above max_value {self._high}")

    @property
    def needs(self) -> Needs:
        return _needs(self.key)

    def met(self, spans: SpanTable) -> Flags:
        return self._hits(spans.attributes[self.key]) | self._hits(spans.resource_attributes[self.key])

    def _hits(self, values: Values) -> Flags:
        inside = (values.integers >= self._low) & (values.integers <= self._high)
        hits: Flags = inside & (values.kind == ValueKind.INT)
        return hits

    @property
    def _low(self) -> int:
        return _SMALLEST if self.min_value is None else self.min_value

    @property
    def _high(self) -> int:
        return _LARGEST if self.max_value is None else self.max_value


@dataclass(frozen=True)
class BooleanAttribute:
    """The attribute is a boolean, and ``value``."""

    key: str
    value: bool

    def __post_init__(self) -> None:
        _check_key(self.key)

    @property
    def needs(self) -> Needs:
        return _needs(self.key)

    def met(self, spans: SpanTable) -> Flags:
        return self._hits(spans.attributes[self.key]) | self._hits(spans.resource_attributes[self.key])

    def _hits(self, values: Values) -> Flags:
        hits: Flags = (values.kind == ValueKind.BOOL) & (values.integers == int(self.value))
        return hits


def _check_key(key: str) -> None:
    if not key:
        raise ValueError("the key of the attribute is empty")


def _needs(key: str) -> Needs:
    return Needs(span_attributes=frozenset([key]), resource_attributes=frozenset([key]))
