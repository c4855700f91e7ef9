"""Arrow steps in a row, as one function over record batches, with every record accounted for.

The chain adds what no single step does: the route's filters (namespace, tokens), failing the records that their source
could not read, the per-step namespace, and the check that each step's outcome adds up. It numbers the rows that a step
makes of one, so that each fails, and is replayed, alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.items import ItemKeys, number_items
from penstock.outcome import FAILURE_SCHEMA, Outcome, check_count, failures_of, place_key
from penstock.record import Header, text_scalar
from penstock.steps.contract import ArrowStep, TooMuch
from penstock.steps.current_step import enter_step
from penstock.steps.replayed_items import ReplayedItems

SOURCE_LABEL = "source"
NAMESPACE_LABEL = "namespace"
ONLY_KEYS_LABEL = "only_keys"
OF_FAILED_LABEL = "of_failed"
"""The skip label of rows whose item failed by another of its rows."""
OF_REPLAYED_LABEL = "of_replayed"
"""The skip label of what a record became besides the item that is replayed."""

STEP_FAILURE_SCHEMA: pa.Schema = FAILURE_SCHEMA.append(pa.field("step", pa.string(), nullable=False))


@dataclass(frozen=True)
class Link:
    """A step in its place: the label it is counted under, and the namespaces it applies to (``None``: all)."""

    label: str
    step: ArrowStep[Any]
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True)
class ChainOutcome:
    """What became of one batch: the rows that were kept, and by step label what was skipped, failed and added."""

    kept: pa.RecordBatch
    skipped: Mapping[str, int] = field(default_factory=dict)
    failures: Sequence[pa.RecordBatch] = ()
    """Batches of ``STEP_FAILURE_SCHEMA``; each item is in them once at most."""
    added: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Chain:
    """The links of a route, in order. ``pattern`` and ``only_keys`` (ids of tokens; empty: all) are its own filters."""

    links: Sequence[Link]
    pattern: re.Pattern[str] | None = None
    only_keys: Sequence[str] = ()
    numbers_items: bool = True
    """``False`` behind a step in Spark: it returns the rows of a record in any order."""

    def runs(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, ChainOutcome]]:
        """Run the batch, or its pieces in order if it is too large; yields each with what became of it."""
        try:
            outcome = self.run(batch)
        except TooMuch:
            half = batch.num_rows // 2
            yield from self.runs(batch.slice(0, half))
            yield from self.runs(batch.slice(half))
        else:
            yield batch, outcome

    def run(self, batch: pa.RecordBatch) -> ChainOutcome:
        """Raises ``TooMuch`` if the batch has to be run in pieces."""
        skipped: dict[str, int] = {}
        added: dict[str, int] = {}
        failures: list[pa.RecordBatch] = []
        replayed = ReplayedItems.of(batch)

        if self.pattern is not None:
            wanted = matching_namespaces(batch, self.pattern)
            if wanted is not None:
                skipped[NAMESPACE_LABEL] = batch.num_rows - pc.sum(wanted).as_py()
                batch = batch.filter(wanted)

        if self.only_keys:
            ours = batch.filter(pc.is_in(tokens(batch), value_set=pa.array(self.only_keys, pa.string())))
            if ours.num_rows < batch.num_rows:
                skipped[ONLY_KEYS_LABEL] = batch.num_rows - ours.num_rows
            batch = ours

        outcome = _fail_malformed(batch)
        batch = _settle(SOURCE_LABEL, batch, outcome, skipped, failures)
        for link in self.links:
            if batch.num_rows == 0:
                break
            enter_step(link.label)
            outcome = _apply(link, batch)
            batch = _settle(link.label, batch, outcome, skipped, failures)
            if outcome.added > 0:
                added[link.label] = outcome.added
                batch = number_items(batch) if self.numbers_items else batch
        if failures:
            batch = _fail_as_a_whole(batch, skipped, failures)
        if replayed is not None:
            batch, failures, left_out = replayed.leave_out_neighbours(batch, failures)
            if left_out:
                skipped[OF_REPLAYED_LABEL] = left_out
        return ChainOutcome(batch, skipped, failures, added)


def tokens(batch: pa.RecordBatch) -> pa.Array:
    """The id of the token that each row was sent with, null for none."""
    headers = batch.column("headers")
    ends = headers.offsets.to_numpy()
    first, last = int(ends[0]), int(ends[-1])
    found = pc.equal(headers.keys.slice(first, last - first), Header.TOKEN.value)
    places = np.flatnonzero(found.to_numpy(zero_copy_only=False)) + first
    each_has_one = len(places) == batch.num_rows and bool(((ends[:-1] <= places) & (places < ends[1:])).all())
    if each_has_one and headers.null_count == 0:
        return headers.items.take(pa.array(places))
    # Right for every batch, and more than ten times slower.
    return pc.map_lookup(headers, Header.TOKEN.value, "first")


def labelled(failures: pa.RecordBatch, label: str) -> pa.RecordBatch:
    """Failures with the label of the step that made them."""
    steps = pa.repeat(pa.scalar(label), failures.num_rows)
    return pa.RecordBatch.from_arrays([*failures.columns, steps], schema=STEP_FAILURE_SCHEMA)


def check_sum(label: str, rows_in: int, outcome: Outcome) -> None:
    """Refuse an outcome that lost or invented a row."""
    added = max(outcome.added, 0)
    check_count(label, rows_in, outcome.kept.num_rows + outcome.skipped + outcome.failures.num_rows - added)


def _settle(
    label: str,
    batch: pa.RecordBatch,
    outcome: Outcome,
    skipped: dict[str, int],
    failures: list[pa.RecordBatch],
) -> pa.RecordBatch:
    check_sum(label, batch.num_rows, outcome)
    if outcome.skipped:
        skipped[label] = skipped.get(label, 0) + outcome.skipped
    if outcome.failures.num_rows:
        failures.append(labelled(outcome.failures, label))
    return outcome.kept


def _apply(link: Link, batch: pa.RecordBatch) -> Outcome:
    wanted = matching_namespaces(batch, link.pattern) if link.pattern is not None else None
    if wanted is None:
        return link.step.apply(batch)
    chosen = batch.filter(wanted)
    others = batch.filter(pc.invert(wanted))
    if chosen.num_rows == 0:
        return Outcome(batch)
    outcome = link.step.apply(chosen)
    check_sum(link.label, chosen.num_rows, outcome)
    both = pa.concat_batches([outcome.kept, others])
    order = pc.sort_indices(pc.index_in(place_key(both), value_set=place_key(batch)))
    return Outcome(both.take(order), outcome.skipped, outcome.failures, outcome.added)


def _fail_as_a_whole(kept: pa.RecordBatch, skipped: dict[str, int], failures: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Remove the other rows of the items that failed; keeps the first failure of an item."""
    named = pa.concat_batches(failures)
    failed = ItemKeys.of(named)
    held_back = ItemKeys.of(kept).within(failed)
    first = failed.first() & ~failed.made_of(failed)
    surplus = np.count_nonzero(~first) + np.count_nonzero(held_back)
    if surplus:
        failures[:] = [named.filter(pa.array(first))]
        skipped[OF_FAILED_LABEL] = int(surplus)
        kept = kept.filter(pa.array(~held_back))
    return kept


def matching_namespaces(batch: pa.RecordBatch, pattern: re.Pattern[str]) -> pa.BooleanArray | None:
    """Which rows' namespaces match; ``None`` when all do. Runs the expression once per distinct namespace."""
    encoded = batch.column("namespace").dictionary_encode()
    hits = [pattern.search(name) is not None for name in encoded.dictionary.to_pylist()]
    if all(hits):
        return None
    return pa.array(hits, pa.bool_()).take(encoded.indices)


_MALFORMED = text_scalar(Header.MALFORMED.value)


def _fail_malformed(batch: pa.RecordBatch) -> Outcome:
    headers = batch.column("headers")
    if not pc.any(pc.equal(headers.keys, _MALFORMED)).as_py():
        return Outcome(batch)
    reasons = pc.map_lookup(headers, Header.MALFORMED.value, "first")
    bad = pc.is_valid(reasons)
    failures = failures_of(batch.filter(bad), "malformed", reasons.filter(bad))
    return Outcome(batch.filter(pc.invert(bad)), failures=failures)
