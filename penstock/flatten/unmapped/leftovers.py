"""Adds members to the text of the column ``_unmapped``: values that the table's own types cannot hold.

Each row's text is one JSON object. Its members stay first; new members follow in the order given.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.json.arrow_text import quoted

Member = tuple[str, pa.BooleanArray | npt.NDArray[np.bool_], pa.Array | Sequence[str]]
"""A key, the rows that get it, and the JSON of their values, one per such row."""


def with_members(
    unmapped: pa.Array | pa.ChunkedArray | None, rows: int, members: Sequence[Member]
) -> pa.Array | pa.ChunkedArray:
    """``unmapped`` with the members added. Only rows that get a member cost work."""
    if unmapped is None:
        unmapped = pa.nulls(rows, pa.string())
    masks = [_mask(chosen) for _, chosen, _ in members]
    touched = np.logical_or.reduce(masks) if masks else np.zeros(rows, np.bool_)
    if not touched.any():
        return unmapped
    pieces = [_insides(unmapped.filter(pa.array(touched)))]
    for (key, _, values), mask in zip(members, masks, strict=True):
        texts = pa.array(values, pa.large_string()) if isinstance(values, Sequence) else values.cast(pa.large_string())
        pieces.append(_spread(_joined(_large(f"{quoted(key).decode()}:"), texts), mask[touched]))
    inside = pc.binary_join_element_wise(*pieces, _large(","), null_handling="skip")
    objects = _joined(_large("{"), inside, _large("}"))
    return pc.replace_with_mask(unmapped, pa.array(touched), objects.cast(unmapped.type))


def _joined(*texts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*texts, _large(""))


def _large(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def _mask(chosen: pa.BooleanArray | npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return chosen if isinstance(chosen, np.ndarray) else chosen.to_numpy(zero_copy_only=False)


def _insides(objects: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The text between the braces, null if it is empty."""
    if isinstance(objects, pa.ChunkedArray):
        objects = objects.combine_chunks()
    trimmed = pc.utf8_trim(objects.cast(pa.large_string()), _SPACE)
    inside = pc.utf8_trim(pc.utf8_slice_codeunits(trimmed, 1, -1), _SPACE)
    return pc.if_else(pc.equal(inside, ""), pa.scalar(None, inside.type), inside)


_SPACE = " \t\r\n"


def _spread(values: pa.Array, mask: npt.NDArray[np.bool_]) -> pa.Array:
    """The values at the marked places, null elsewhere."""
    if len(values) == len(mask):
        return values
    return values.take(pa.array(np.cumsum(mask) - 1, mask=~mask))
