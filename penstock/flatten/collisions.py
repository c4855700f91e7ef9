"""Several paths with the same column name: which of them gets the column.

Each document decides by itself: of two such paths in one document the first gets the column, and the other goes to
``_unmapped`` under its path. Paths of different documents both fill the column. So the result for a document never
depends on its neighbours.
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
    """Two paths with one name: ``path`` went to ``_unmapped``, ``kept`` got the column (None: the name is reserved)."""

    name: str
    path: str
    kept: str | None
    values: int


@dataclass(frozen=True)
class Claim:
    """The values of a path that claims a column by its name."""

    path: Path
    spans: Spans


@dataclass(frozen=True)
class ResolvedColumn:
    """The values of a column (at most one per row), the paths they come from, and what is left over."""

    spans: Spans
    paths: tuple[str, ...]
    leftovers: tuple[Leftover, ...] = ()
    collisions: tuple[Collision, ...] = ()


def resolve_collisions(name: str, claims: Sequence[Claim]) -> ResolvedColumn:
    """Give each document's column to the path that comes first in it."""
    paths = tuple(format_path(claim.path) for claim in claims)
    if len(claims) == 1:
        return ResolvedColumn(claims[0].spans, paths)
    claimed = [claim.spans for claim in claims]
    row = np.concatenate([spans.row for spans in claimed])
    kind = np.concatenate([spans.kind for spans in claimed])
    start = np.concatenate([spans.start for spans in claimed])
    end = np.concatenate([spans.end for spans in claimed])
    claim = np.repeat(np.arange(len(claims)), [len(spans) for spans in claimed])
    order = np.lexsort((start, row))
    row, kind, start, end, claim = row[order], kind[order], start[order], end[order], claim[order]
    first = np.diff(row, prepend=-1) != 0
    # The kinds of the column's own values, not of the leftovers: they decide its type.
    kinds = frozenset(map(Kind, np.unique(kind[first]).tolist()))
    together = Spans(claimed[0].buffer, row, kind, start, end, kinds)
    winner = claim[first]
    kept_paths = tuple(paths[place] for place in np.unique(winner).tolist())
    if first.all():
        return ResolvedColumn(together, kept_paths)
    lost, lost_claim = together.where(~first), claim[~first]
    lost_to = winner[np.cumsum(first) - 1][~first]
    pairs, counts = np.unique(np.stack([lost_claim, lost_to], axis=1), axis=0, return_counts=True)
    return ResolvedColumn(
        together.where(first),
        kept_paths,
        tuple(Leftover(paths[k], lost.where(lost_claim == k)) for k in np.unique(lost_claim).tolist()),
        tuple(
            Collision(name, paths[loser], paths[keeper], count)
            for (loser, keeper), count in zip(pairs.tolist(), counts.tolist(), strict=True)
        ),
    )


def reserved_leftovers(name: str, claims: Sequence[Claim]) -> tuple[list[Leftover], list[Collision]]:
    """The leftovers and collisions of a name that no path can have."""
    paths = [format_path(claim.path) for claim in claims]
    return (
        [Leftover(path, claim.spans) for path, claim in zip(paths, claims, strict=True)],
        [Collision(name, path, None, len(claim.spans)) for path, claim in zip(paths, claims, strict=True)],
    )
