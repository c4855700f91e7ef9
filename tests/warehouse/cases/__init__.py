"""The cases, by topic."""

from __future__ import annotations

from tests.warehouse.cases import (
    conflicts,
    flattening,
    freeze_and_limits,
    keys,
    mapping,
    names,
    nasty,
    promotion,
    samples,
    tables,
    types,
)

ALL = [
    case
    for topic in (
        samples,
        mapping,
        flattening,
        names,
        types,
        promotion,
        conflicts,
        freeze_and_limits,
        keys,
        tables,
        nasty,
    )
    for case in topic.CASES
]
