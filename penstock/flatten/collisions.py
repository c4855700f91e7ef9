"""Paths with one name: which of them has the column.

That is decided for each document by itself: of two such paths in one document the first has the column, and the other
goes to ``_unmapped`` under its path. Paths that meet only in different documents both fill the column. So what becomes
of a document never depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.flatten.unmapped.unmapped_column import Leftover
from penstock.flatten.values.value_spans import Spans
from penstock.json.paths import Path, format_path
from penstock.json.tokens import Kind


@dataclass(frozen=True)
class Collision:
    """Two paths with one name: ``path`` went to ``_unmapped``, ``kept`` has the column (None: the name is reserved)."""

    name: str
    path: str
    kept: str | None
    values: int


@dataclass(frozen=True)
class Claim:
    """The values of a path whose name is that of a column."""

    path: Path
    spans: Spans


@dataclass(frozen=True)
class Settled:
    """What a column gets (at most one value per row), the paths it comes from, and what is left over."""

    spans: Spans
    paths: tuple[str, ...]
    leftovers: tuple[Leftover, ...] = ()
    collisions: tuple[Collision, ...] = ()


def settle(name: str, claims: Sequence[Claim]) -> Settled:
    """Give each document's column to the path that comes first in it."""
    paths = tuple(format_path(claim.path) for claim in claims)
    if len(claims) == 1:
        return Settled(claims[0].spans, paths)
    claimed = [claim.spans for claim in claims]
    row = np.concatenate([spans.row for spans in claimed])
    kind = np.concatenate([spans.kind for spans in claimed])
    start = np.concatenate([spans.start for spans in claimed])
    end = np.concatenate([spans.end for spans in claimed])
    claim = np.repeat(np.arange(len(claims)), [len(spans) for spans in claimed])
    order = np.lexsort((start, row))
    row, kind, start, end, claim = row[order], kind[order], start[order], end[order], claim[order]
    first = np.diff(row, prepend=-1) != 0
    # The kinds of what the column gets, not of what is left over: they decide its type.
    kinds = frozenset(map(Kind, np.unique(kind[first]).tolist()))
    together = Spans(claimed[0].buffer, row, kind, start, end, kinds)
    winner = claim[first]
    kept_paths = tuple(paths[place] for place in np.unique(winner).tolist())
    if first.all():
        return Settled(together, kept_paths)
    lost, lost_claim = together.where(~first), claim[~first]
    lost_to = winner[np.cumsum(first) - 1][~first]
    pairs, counts = np.unique(np.stack([lost_claim, lost_to], axis=1), axis=0, return_counts=True)
    return Settled(
        together.where(first),
        kept_paths,
        tuple(Leftover(paths[k], lost.where(lost_claim == k)) for k in np.unique(lost_claim).tolist()),
        tuple(
            Collision(name, paths[loser], paths[keeper], count)
            for (loser, keeper), count in zip(pairs.tolist(), counts.tolist(), strict=True)
        ),
    )


def reserve(name: str, claims: Sequence[Claim]) -> tuple[list[Leftover], list[Collision]]:
    """For a name that no path can have."""
    paths = [format_path(claim.path) for claim in claims]
    return (
        [Leftover(path, claim.spans) for path, claim in zip(paths, claims, strict=True)],
        [Collision(name, path, None, len(claim.spans)) for path, claim in zip(paths, claims, strict=True)],
    )
