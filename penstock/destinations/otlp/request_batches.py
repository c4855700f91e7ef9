"""Groups what is staged into requests that are not too large, in its order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.destinations.otlp.staged_requests import StagedPiece
from penstock.otlp.request_pieces import FRAME, Heads

Pieces = Sequence[StagedPiece]


def request_batches(pieces: Iterable[StagedPiece], max_entries: int, max_bytes: int) -> Iterator[Pieces]:
    """The pieces of each request; a piece that is too large for one is cut. A single entry is never too large."""
    together: list[StagedPiece] = []
    entries = size = 0
    last: Heads | None = None
    for piece in (part for whole in pieces for part in _capped(whole, max_entries, max_bytes)):
        own = sum(map(len, piece.piece.entries))
        more = own + _head_bytes(piece.piece.heads, last)
        if together and (entries + len(piece) > max_entries or size + more > max_bytes):
            yield together
            together, entries, size = [], 0, 0
            more = own + _head_bytes(piece.piece.heads, None)
        together.append(piece)
        entries += len(piece)
        size += more
        last = piece.piece.heads
    if together:
        yield together


def halves(pieces: Pieces, inside_rows: bool) -> tuple[Pieces, Pieces] | None:
    """The pieces of a request as those of two, cut between rows, or between any two entries. ``None``: there is but one
    row, or entry."""
    if not inside_rows:
        middle = len(pieces) // 2
        cuts = [at for at in range(1, len(pieces)) if pieces[at].place != pieces[at - 1].place]
        if not cuts:
            return None
        at = min(cuts, key=lambda at: abs(at - middle))
        return pieces[:at], pieces[at:]
    left = sum(map(len, pieces)) // 2
    if left == 0:
        return None
    for at, piece in enumerate(pieces):
        if left < len(piece):
            begun = [piece.between(0, left)] if left else []
            return [*pieces[:at], *begun], [piece.between(left, len(piece)), *pieces[at + 1 :]]
        left -= len(piece)
    raise AssertionError("half of the entries are more than all of them")


def _capped(piece: StagedPiece, max_entries: int, max_bytes: int) -> Iterator[StagedPiece]:
    """The piece in parts of which each fits into a request of its own."""
    room = max_bytes - _head_bytes(piece.piece.heads, None)
    if len(piece) == 1:
        yield piece
        return
    first = size = 0
    for at, entry in enumerate(piece.piece.entries):
        if at > first and (at - first == max_entries or size + len(entry) > room):
            yield piece.between(first, at)
            first, size = at, 0
        size += len(entry)
    yield piece.between(first, len(piece))


def _head_bytes(heads: Heads, last: Heads | None) -> int:
    """The most bytes that heads take behind others in the same request."""
    if heads == last:
        return 0
    scope = len(heads.scope) + FRAME
    if last is not None and heads[:2] == last[:2]:
        return scope
    return scope + len(heads.request) + len(heads.resource) + FRAME
