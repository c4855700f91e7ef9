"""Where the values of rows are in a buffer of text, for COPY and replication alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes

Places = npt.NDArray[np.int32]

NULL = -1
"""In place of a value's start: the value is NULL."""
UNCHANGED = -2
"""An unchanged TOAST value: an update does not carry it."""
ABSENT = -3
"""Only the key of an old row is known, and this column is not in it."""


class Fields(NamedTuple):
    """Row after row, a place per column; a value is ``text[starts[i]:ends[i]]``, or one of the marks above."""

    text: Bytes
    starts: Places
    ends: Places
