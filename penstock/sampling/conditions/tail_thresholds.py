"""Thresholds that another sampler has written on spans: traces whose randomness is at least that large are wanted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.otlp.span_table import Needs, SpanTable, Words
from penstock.sampling.span_item import NO_THRESHOLD

TAIL_THRESHOLD = "sampling.tail.threshold"
TAIL_THRESHOLD_NEEDS = Needs(span_attributes=frozenset([TAIL_THRESHOLD]))

_DIGITS = 14
_WRITTEN = f"^0x[0-9a-fA-F]{{1,{_DIGITS}}}$"
_PLACES = np.uint64(4) * np.arange(_DIGITS - 1, -1, -1, dtype=np.uint64)
_DIGIT_VALUES = np.zeros(256, np.uint64)
_DIGIT_VALUES[list(b"0123456789abcdef")] = np.arange(16)
_DIGIT_VALUES[list(b"ABCDEF")] = np.arange(10, 16)


def tail_thresholds(spans: SpanTable) -> Words:
    """The threshold of each span, of 56 bits; ``NO_THRESHOLD`` where it has none.

    It is a string of ``0x`` and up to 14 hexadecimal digits, the highest first; those that are missing are zeros. What
    is written in another way is no threshold.
    """
    texts = spans.attributes[TAIL_THRESHOLD].texts
    thresholds = np.full(len(texts), NO_THRESHOLD)
    written = pc.match_substring_regex(texts, _WRITTEN).fill_null(False)
    if not pc.any(written).as_py():
        return thresholds
    digits = pc.ascii_rpad(pc.utf8_slice_codeunits(texts.filter(written), 2), _DIGITS, "0")
    characters = np.frombuffer(digits.cast(pa.binary(_DIGITS)).buffers()[1], np.uint8).reshape(-1, _DIGITS)
    thresholds[written.to_numpy(zero_copy_only=False)] = (_DIGIT_VALUES[characters] << _PLACES).sum(axis=1)
    return thresholds
