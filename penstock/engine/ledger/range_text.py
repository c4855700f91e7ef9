"""Ranges of offsets as the ledger keeps them: one line of text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence


def ranges_to_text(ranges: Mapping[int, tuple[int, int]]) -> str:
    return json.dumps({str(partition): [start, end] for partition, (start, end) in sorted(ranges.items())})


def ranges_from_text(text: str) -> dict[int, tuple[int, int]]:
    return {int(partition): (start, end) for partition, (start, end) in json.loads(text).items()}


def stretches_to_text(stretches: Mapping[int, Sequence[tuple[int, int]]]) -> str:
    """The same for several stretches of a partition."""
    return json.dumps({str(partition): [list(each) for each in found] for partition, found in stretches.items()})


def stretches_from_text(text: str) -> dict[int, list[tuple[int, int]]]:
    return {int(partition): [(start, end) for start, end in found] for partition, found in json.loads(text).items()}
