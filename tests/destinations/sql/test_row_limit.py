"""Which values go aside so that a row has room."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.sql.load.row_limit import RowLimit

LIMIT = RowLimit(room=100, short=23, long=27, fixed={"bigint": (8, 8), "boolean": (1, 1)}, widest=27)
KINDS = {"text": st.text("ab", max_size=40), "bigint": st.integers(0, 9), "boolean": st.booleans()}
ARROW = {"text": pa.string(), "bigint": pa.int64(), "boolean": pa.bool_()}


def stored(row: list[tuple[str, object]]) -> int:
    """What a row takes, value by value."""
    at = 0
    for kind, value in row:
        if isinstance(value, str):
            at += len(value) + 1 if len(value) <= 23 else 27
        elif kind == "bigint" and value is not None:
            at = -(-at // 8) * 8 + 8
        elif value is not None:
            at += 1
    return at


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[tuple[str, list[object]]], list[int | None]]:
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=30))
    columns = [(kind, draw(st.lists(st.none() | KINDS[kind], min_size=3, max_size=3))) for kind in kinds]
    return columns, [draw(st.sampled_from([0, 0, 1, None])) for _ in kinds]


@given(tables())
def test_every_row_fits_or_has_nothing_left_to_move(
    table: tuple[list[tuple[str, list[object]]], list[int | None]],
) -> None:
    columns, turns = table
    found = LIMIT.excess([(kind, pa.array(values, ARROW[kind])) for kind, values in columns], turns)
    masks = found or [np.zeros(3, np.bool_) for _ in columns]
    for row in range(3):
        before = [(kind, values[row]) for kind, values in columns]
        after = [(kind, None if mask[row] else value) for (kind, value), mask in zip(before, masks, strict=True)]
        movable = [n for n, (_, value) in enumerate(after) if value is not None and turns[n] is not None]
        assert stored(after) <= LIMIT.room or not movable
        if stored(before) <= LIMIT.room:
            assert after == before
        assert not any(mask[row] for mask, turn in zip(masks, turns, strict=True) if turn is None)


def test_the_widest_text_goes_first() -> None:
    texts = ["a" * 9, "b" * 90, "c" * 30, *(["d" * 20] * 3)]
    found = LIMIT.excess([("text", pa.array([text])) for text in texts], [0] * 6)
    assert found is not None
    assert [bool(mask[0]) for mask in found] == [False, True, False, False, False, False]
