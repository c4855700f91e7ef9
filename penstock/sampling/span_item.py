"""A span on its way to a decision, and on its way out: a pointer, and the few numbers that either needs."""

from __future__ import annotations

import numpy as np

from penstock.holding.item import ITEM, MADE

SPAN_ITEM = np.dtype(
    [
        *ITEM.descr,
        ("mask", "<u8"),
        ("start", "<u8"),
        ("end", "<u8"),
        ("size", "<u4"),
        ("threshold", "<u8"),
    ]
)
"""What scan says of a span. ``high`` and ``low`` are its trace id, scrambled by a secret; ``item`` is its place in its
request, from 1 on; ``mask`` has a bit for every condition that it meets; times are ns, 0 is none; ``size`` is its
bytes. The low 8 of its ``bits`` are the number of where it is from, for metrics. A decision span has no times: its
``start`` is the bits of the weight that its trace has, and its ``end`` the number of the policy that decided, or
``NO_POLICY``."""

ROOT = np.uint64(1 << 63)
"""The bit of ``mask`` of a root span."""
DECIDED_SAMPLED = np.uint64(1 << 62)
DECIDED_NOT_SAMPLED = np.uint64(1 << 61)
"""The bits of ``mask`` of a decision span: it says what another sampler has decided, and is no span of the trace."""
LOG = np.uint64(1 << 60)
"""The bit of ``mask`` of a log record: it follows what is decided on its trace, and has no say in it."""
MOST_CONDITIONS = 60
"""Bits 0 to 59 of ``mask`` are for conditions."""

NO_THRESHOLD = np.uint64(1 << 56)
"""The ``threshold`` of a span without the attribute: above all others."""

LEAVING_SPAN = np.dtype([*ITEM.descr, ("weight", "<f8")])
"""What leaves. Of its ``bits``, the low 16 are the number of the policy that decided, or ``NO_POLICY``; the flags below
say as what it leaves. ``weight`` is how many traces it stands for: the adjusted count."""

NO_POLICY = 0xFFFF
FLUSHED = np.uint32(1 << 16)
"""It leaves undecided, for another sampler to decide."""
PLACEHOLDER = np.uint32(1 << 17)
"""In its place a span leaves that says that its trace was not sampled."""
NOT_SAMPLED = np.uint32(1 << 18)
"""It leaves though it is not sampled, because of ``dry_run``; with ``DECISION``: the decision is not sampled."""
AS_IT_IS = np.uint32(1 << 31)
"""The engine's bit of what goes on without a decision: what is on it already stays."""
DECISION = MADE
"""It is no span of the log but a decision of the trace, for another sampler."""
