"""Which rows of a batch are no bundles that can be written, and why, told to people: source, kind and what is wrong.

A row fails by the first rule that it breaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.conflation.bundle import LONGEST_NAME, NOT_IN_NAMES
from penstock.conflation.bundle_rules import (
    MOST_SHOWN,
    NAMES,
    NO_DATA,
    TEXTS,
    VERSIONS,
    missing,
    no_text,
    wrong_text,
)
from penstock.conflation.kinds import Kinds, Sync
from penstock.conflation.newest import Flags, VersionColumn
from penstock.conflation.version import VERSION_PATTERN
from penstock.outcome import concat_failures, failures_of
from penstock.record import Header


class BadBundle(StrEnum):
    """Why a record is no bundle that can be written: the code of its failure."""

    BAD_BUNDLE = "bad_bundle"
    """It is no JSON object, or has no source, no kind or no data."""
    BAD_VERSION = "bad_version"
    UNKNOWN_KIND = "unknown_kind"
    MISSING_BASE = "missing_base"
    """It is a change, and does not say of what."""
    MISSING_DEPENDENCY = "missing_dependency"
    """Its kind depends on another, and it does not say on which version."""


@dataclass(frozen=True)
class BundleTexts:
    """What describes the bundles of a batch: by the order of ``TEXTS``, a column for each."""

    columns: Sequence[pa.StringArray]
    """Null where there is none."""
    not_text: Sequence[Flags]
    """Where there is a value of another type; the column has it as it is written."""
    unreadable: Mapping[int, str] = field(default_factory=dict)
    """Rows that describe nothing, with the reason."""

    def column(self, name: Header) -> pa.StringArray:
        return self.columns[TEXTS.index(name)]

    def is_there(self, name: Header) -> Flags:
        return _flags(pc.is_valid(self.column(name)))

    def refused(self, rows: Flags, reason: str) -> BundleTexts:
        """The same, with these rows unreadable."""
        return replace(self, unreadable={**self.unreadable, **dict.fromkeys(np.flatnonzero(rows).tolist(), reason)})

    def replaced(self, rows: Flags, by: BundleTexts) -> BundleTexts:
        """The same with other texts in these rows."""
        mask = pa.array(rows)
        not_text = []
        for mine, other in zip(self.not_text, by.not_text, strict=True):
            merged = mine.copy()
            merged[rows] = other
            not_text.append(merged)
        places = np.flatnonzero(rows)
        return BundleTexts(
            [pc.replace_with_mask(mine, mask, other) for mine, other in zip(self.columns, by.columns, strict=True)],
            not_text,
            {**self.unreadable, **{int(places[row]): reason for row, reason in by.unreadable.items()}},
        )


def fail_bad_bundles(
    places: pa.RecordBatch, texts: BundleTexts, has_data: pa.BooleanArray, kinds: Kinds
) -> tuple[Flags, pa.RecordBatch]:
    """Which rows are good, and the failures (``FAILURE_SCHEMA``) of those that are not; ``places`` says where they
    are."""
    check = _Check(places, texts)
    _check_names(check, texts)
    _check_versions(check, texts)
    known = pc.is_in(texts.column(Header.KIND), value_set=pa.array(list(kinds), pa.string()))
    declared = f"no such kind is declared; there are {', '.join(kinds)}"
    check.fail(~_flags(known), BadBundle.UNKNOWN_KIND, declared)
    _check_relations(check, texts, kinds)
    check.fail(~_flags(has_data), BadBundle.BAD_BUNDLE, NO_DATA)
    return check.good, concat_failures(check.failures)


class _Check:
    """The rows that are good so far, and the failures of the others."""

    def __init__(self, places: pa.RecordBatch, texts: BundleTexts) -> None:
        self.good = np.ones(places.num_rows, np.bool_)
        self.failures: list[pa.RecordBatch] = []
        self._places = places
        self._texts = texts
        if texts.unreadable:
            rows, reasons = [*texts.unreadable], [*texts.unreadable.values()]
            self.good[rows] = False
            messages = pa.array(reasons, pa.string())
            self.failures.append(failures_of(places.take(pa.array(rows)), BadBundle.BAD_BUNDLE, messages))

    def fail(self, broken: Flags, code: BadBundle, what: str, shown: pa.StringArray | None = None) -> None:
        """Fail the broken rows that are good so far. ``shown`` has the wrong text of each, for ``{}`` in ``what``."""
        failed = broken & self.good
        if not failed.any():
            return
        self.good &= ~failed
        rows = pa.array(failed)
        parts: list[str | pa.StringArray] = ["kind ", self._named(Header.KIND, rows), " of "]
        parts += ["source ", self._named(Header.SOURCE, rows), ": "]
        before, braces, after = what.partition("{}")
        parts += [before, _shortened(shown.filter(rows)), after] if braces and shown is not None else [what]
        messages = pc.binary_join_element_wise(*parts, "")
        self.failures.append(failures_of(self._places.filter(rows), code, messages))

    def _named(self, name: Header, rows: pa.BooleanArray) -> pa.StringArray:
        text = _shortened(self._texts.column(name).filter(rows))
        return pc.fill_null(pc.binary_join_element_wise("'", text, "'", ""), "(none)")


def _check_names(check: _Check, texts: BundleTexts) -> None:
    for name in NAMES:
        column, bad = texts.column(name), BadBundle.BAD_BUNDLE
        check.fail(~texts.is_there(name), bad, missing(name))
        check.fail(texts.not_text[TEXTS.index(name)], bad, no_text(name), column)
        lengths = pc.utf8_length(column)
        fits = pc.and_(pc.greater(lengths, 0), pc.less_equal(lengths, LONGEST_NAME))
        check.fail(~_flags(fits) | _matches(column, NOT_IN_NAMES), bad, wrong_text(name), column)


def _check_versions(check: _Check, texts: BundleTexts) -> None:
    bad = BadBundle.BAD_VERSION
    check.fail(~texts.is_there(Header.VERSION), bad, missing(Header.VERSION))
    for name in VERSIONS:
        column = texts.column(name)
        check.fail(texts.not_text[TEXTS.index(name)], bad, no_text(name), column)
        check.fail(texts.is_there(name) & ~_matches(column, VERSION_PATTERN), bad, wrong_text(name), column)


def _check_relations(check: _Check, texts: BundleTexts, kinds: Kinds) -> None:
    """Fail bundles that leave out a version which their kind needs, or name two of one kind."""
    column = texts.column(Header.KIND)
    deltas = [kind.name for kind in kinds.values() if kind.sync is Sync.DELTA]
    without_base, are_deltas = (
        ~texts.is_there(Header.BASE),
        _flags(pc.is_in(column, value_set=pa.array(deltas, pa.string()))),
    )
    check.fail(
        without_base & are_deltas,
        BadBundle.MISSING_BASE,
        "it is a change and has no base: the version of what it changes",
    )
    if (both := are_deltas & texts.is_there(Header.DEPENDS_ON) & check.good).any():
        # What a change depends on is what it changes.
        needs, base = (VersionColumn.parse(texts.column(name)) for name in (Header.DEPENDS_ON, Header.BASE))
        differ = (needs.incarnation != base.incarnation) | (needs.generation != base.generation)
        what = "it is a change of its base, and depends_on is another version of the same kind: '{}'; leave it out"
        check.fail(both & differ, BadBundle.BAD_BUNDLE, what, texts.column(Header.DEPENDS_ON))
    for kind in kinds.values():
        needed = kind.depends_on
        if needed is not None and not needed.implicit:
            check.fail(
                without_base & ~texts.is_there(Header.DEPENDS_ON) & _flags(pc.equal(column, kind.name)),
                BadBundle.MISSING_DEPENDENCY,
                f"it has no depends_on: the version of {needed.kind} that it belongs to",
            )


def _matches(column: pa.StringArray, pattern: str) -> Flags:
    return _flags(pc.match_substring_regex(column, pattern))


def _shortened(texts: pa.StringArray) -> pa.StringArray:
    return pc.utf8_slice_codeunits(texts, 0, MOST_SHOWN)


def _flags(found: pa.BooleanArray) -> Flags:
    """As numpy has them; a null is false."""
    flags: Flags = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return flags
