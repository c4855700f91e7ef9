"""Makes new data of each record by itself: a SELECT without groups, order or joins."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.json.arrow_text import spread
from penstock.json.find import find
from penstock.json.members import drop_members
from penstock.outcome import Outcome
from penstock.steps.condition import Condition
from penstock.steps.contract import ArrowStep
from penstock.steps.edits import Editing
from penstock.steps.expression.evaluate import evaluate
from penstock.steps.expression.tree import fields
from penstock.steps.outcomes import settle
from penstock.steps.sql.config import SqlConfig
from penstock.steps.sql.select import parse_select


class Sql(ArrowStep[SqlConfig]):
    """As in SQL, every value is computed from the record as it came, and the condition comes first."""

    def __init__(self, config: SqlConfig) -> None:
        super().__init__(config)
        self._select = parse_select(config.query)
        self._condition = None if self._select.condition is None else Condition(self._select.condition)
        self._paths = list(dict.fromkeys(path for _, node in self._select.columns for path in fields(node)))

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        if batch.num_rows == 0:
            return Outcome(batch)
        if self._condition is None:
            return self._selected(batch)
        judged = self._condition.judge(batch)
        first = settle(batch, judged.valid & judged.true, judged.failed)
        second = self._selected(first.kept)
        failed = pa.concat_batches([first.failures, second.failures])
        return Outcome(second.kept, first.skipped + second.skipped, failed)

    def _selected(self, batch: pa.RecordBatch) -> Outcome:
        if batch.num_rows == 0:
            return Outcome(batch)
        select = self._select
        found = find(batch.column("data"), self._paths)
        editing = Editing.begin(batch, batch.column("data"), found)
        if not select.everything:
            editing = replace(editing, data=pa.repeat(pa.scalar(b"{}", pa.binary()), batch.num_rows))
        elif select.but:
            editing = replace(editing, data=drop_members(editing.data, select.but).data)
        places = {path: place for place, path in enumerate(self._paths)}
        for target, node in select.columns:
            value = evaluate(node, batch, found, places)
            editing = editing.put(target, spread(value.json, batch.num_rows))
        return editing.outcome()
