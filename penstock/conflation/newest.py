"""The newest bundles of a batch, found over whole columns: what is left out nobody needs, whatever was written before.

For each source and kind: of complete bundles the newest, of deltas those on the newest base; and of equal versions the
one that came first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.conflation.version import VERSION_PATTERN
from penstock.record import int64_values

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

NO_VERSION = -1
"""In place of incarnation and generation, where there is no version."""


class VersionColumn:
    """A column of versions as numbers. A null and a text that is no version have ``NO_VERSION``."""

    def __init__(self, incarnation: Numbers, generation: Numbers) -> None:
        self.incarnation = incarnation
        self.generation = generation

    @classmethod
    def parse(cls, texts: pa.StringArray) -> VersionColumn:
        # Few texts are many rows' (a dependency, a base): each is parsed once.
        distinct = pc.dictionary_encode(texts, null_encoding="encode")
        parsed = pc.extract_regex(distinct.dictionary, VERSION_PATTERN)
        found = []
        for part in ("incarnation", "generation"):
            numbers = pc.fill_null(pc.cast(pc.struct_field(parsed, part), pa.int64()), NO_VERSION)
            found.append(int64_values(numbers)[distinct.indices.to_numpy(zero_copy_only=False)])
        return cls(*found)

    @property
    def present(self) -> Flags:
        found: Flags = self.incarnation != NO_VERSION
        return found


def codes_of(column: pa.StringArray) -> Numbers:
    """A number for each text of a column without nulls, the same for equal ones."""
    codes: Numbers = pc.dictionary_encode(column).indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def newest_rows(groups: Numbers, versions: VersionColumn, bases: VersionColumn, complete: Flags) -> Flags:
    """Which rows to keep. ``groups`` has one number per source and kind; ``complete`` tells for each row whether its
    kind's bundles are. Where bundles have no base, the base is ``NO_VERSION``."""
    kept = np.zeros(len(groups), np.bool_)
    if not len(groups):
        return kept
    # Within a group by base, then version; of equal ones the first stands last. A complete bundle has no base to
    # compare, even if it names one.
    base_incarnation = np.where(complete, NO_VERSION, bases.incarnation)
    base_generation = np.where(complete, NO_VERSION, bases.generation)
    backwards = -np.arange(len(groups), dtype=np.int64)
    order = np.lexsort(
        (backwards, versions.generation, versions.incarnation, base_generation, base_incarnation, groups)
    )
    sorted_groups = groups[order]
    last_of_group = np.append(sorted_groups[1:] != sorted_groups[:-1], True)
    last = order[last_of_group][np.cumsum(last_of_group) - last_of_group]
    on_newest_base = (base_incarnation[order] == base_incarnation[last]) & (
        base_generation[order] == base_generation[last]
    )
    next_is_equal = np.append(
        ~last_of_group[:-1]
        & (versions.incarnation[order[1:]] == versions.incarnation[order[:-1]])
        & (versions.generation[order[1:]] == versions.generation[order[:-1]])
        & (base_incarnation[order[1:]] == base_incarnation[order[:-1]])
        & (base_generation[order[1:]] == base_generation[order[:-1]]),
        False,
    )
    kept[order] = np.where(complete[order], last_of_group, on_newest_base & ~next_is_equal)
    return kept
