"""Computes values and puts them into the records, one field after the other."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.json.arrow_text import spread
from penstock.json.edit import path_prefixes
from penstock.json.find import find
from penstock.json.paths import Path
from penstock.outcome import Outcome
from penstock.steps.contract import ArrowStep
from penstock.steps.edits import Editing
from penstock.steps.expression.evaluate import evaluate
from penstock.steps.expression.parse import parse
from penstock.steps.expression.tree import Node, fields
from penstock.steps.fields import field_path
from penstock.steps.set.config import SetConfig


@dataclass(frozen=True)
class _Assignment:
    target: Path
    value: Node
    reads: tuple[Path, ...]


class Set(ArrowStep[SetConfig]):
    """Each field is computed from the record as the fields before it have left it."""

    def __init__(self, config: SetConfig) -> None:
        super().__init__(config)
        self._assignments = []
        for target, text in config.fields.items():
            value = parse(text)
            self._assignments.append(_Assignment(field_path(target), value, tuple(fields(value))))

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        if batch.num_rows == 0:
            return Outcome(batch)
        editing: Editing | None = None
        for assignment in self._assignments:
            # One scan for what is read and for where the value goes: a scan costs more than everything after it.
            paths = [*assignment.reads, *path_prefixes(assignment.target)]
            found = find(editing.data if editing else batch.column("data"), paths)
            editing = editing or Editing.begin(batch, batch.column("data"), found)
            places = {path: place for place, path in enumerate(assignment.reads)}
            value = evaluate(assignment.value, batch, found, places)
            target = found.paths_from(len(assignment.reads))
            editing = editing.put(assignment.target, spread(value.json, batch.num_rows), target)
        assert editing is not None  # the config has at least one field
        return editing.outcome()
