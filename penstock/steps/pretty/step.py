"""Writes a few of the records that pass to standard error, where the engine's own messages go.

Not by ``logging``: the processes that run steps have no logging set up, and would lose it.
"""

from __future__ import annotations

import json
import sys
import time

import pyarrow as pa

from penstock.outcome import Outcome
from penstock.record import Record, records
from penstock.steps.contract import ArrowStep
from penstock.steps.pretty.config import PrettyConfig


class Pretty(ArrowStep[PrettyConfig]):
    """Its only state is when it may show the next record; that never changes what becomes of the records."""

    def __init__(self, config: PrettyConfig) -> None:
        super().__init__(config)
        self._next = float("-inf")

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        now = time.monotonic()
        if batch.num_rows and now >= self._next:
            # At most a second's worth at once: a rate of 5 shows five of this batch, or one of each of five batches.
            count = min(batch.num_rows, max(1, int(self.config.per_second)))
            self._next = now + count / self.config.per_second
            shown = "".join(show(record, self.config.max_bytes) for record in records(batch.slice(0, count)))
            sys.stderr.write(shown)
            sys.stderr.flush()
        return Outcome(batch)


def show(record: Record, max_bytes: int) -> str:
    """The record for a person: a line with its place and kind, then its data, indented if it is JSON.

    Text that is no JSON is shown with its control characters escaped, so that it cannot play with the terminal.
    """
    head = f"{record.partition}:{record.offset} {record.timestamp.isoformat()} {record.op} {record.namespace!r}"
    return f"{head}\n{_data(record.data, max_bytes)}\n"


def _data(data: bytes | None, max_bytes: int) -> str:
    if data is None:
        return "(no data)"
    if len(data) > max_bytes:
        return f"{_plain(data[:max_bytes])} ... ({len(data)} bytes)"
    try:
        # Keep the text of numbers: a float would lose digits.
        return _indented(json.loads(data, parse_float=_Spelt, parse_int=_Spelt), "")
    except (ValueError, RecursionError):
        return _plain(data)


class _Spelt(str):
    """A number's own text."""


def _indented(value: object, margin: str) -> str:
    deeper = f"{margin}  "
    if isinstance(value, dict) and value:
        lines = [f"{deeper}{_text(key)}: {_indented(each, deeper)}" for key, each in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{margin}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"{deeper}{_indented(each, deeper)}" for each in value) + f"\n{margin}]"
    return str(value) if isinstance(value, _Spelt) else _text(value)


def _text(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


def _plain(data: bytes) -> str:
    return ascii(data.decode("utf-8", "backslashreplace"))[1:-1]
