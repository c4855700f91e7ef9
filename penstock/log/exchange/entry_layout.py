"""The byte layout of Transporter's commit log.

    offset       8     where the entry is in its log
    length       4     of what follows the mode: key length, key, data length, data
    timestamp    8     whole seconds since 1970
    mode         1     bits 0-1: copy 0, sync 1, complete 2; bits 2-4: insert 0, update 1, delete 2, command 3, noop 4
    key length   4
    key                the namespace, as UTF-8
    data length  4
    data

Numbers are big endian, entries follow each other without a gap, offsets ascend. It has no room for a record's own key,
its headers and parts of a second, and knows no difference between no data and empty data; we read it as no data.
"""

from __future__ import annotations

import numpy as np

from penstock.record import Mode, Op

MODES = [Mode.COPY, Mode.SYNC, Mode.COMPLETE]
OPS = [Op.INSERT, Op.UPDATE, Op.DELETE, Op.COMMAND, Op.NOOP]
OP_SHIFT = 2

HEAD = np.dtype([("offset", ">i8"), ("length", ">u4"), ("timestamp", ">i8"), ("mode", "u1"), ("key_length", ">u4")])
"""What stands before the key."""
BEFORE_LENGTH_COUNTS = 21
LENGTHS_BYTES = 8
"""The two length fields, which ``length`` includes."""

SECOND = 1_000_000
"""Our timestamps are in microseconds."""
