"""Gives records other namespaces; each distinct name of a batch is looked at once."""

from __future__ import annotations

import pyarrow as pa

from penstock.outcome import Outcome
from penstock.steps.contract import ArrowStep
from penstock.steps.remap.config import RemapConfig, is_expression, rules


class Remap(ArrowStep[RemapConfig]):
    def __init__(self, config: RemapConfig) -> None:
        super().__init__(config)
        self._exact = {old: new for old, new in config.namespaces.items() if not is_expression(old)}
        self._rules = rules(config.namespaces)

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        place = batch.schema.get_field_index("namespace")
        encoded = batch.column(place).dictionary_encode()
        olds = encoded.dictionary.to_pylist()
        news = [self._renamed(old) for old in olds]
        if news == olds:
            return Outcome(batch)
        names = pa.array(news, pa.string()).take(encoded.indices)
        return Outcome(batch.set_column(place, batch.schema.field(place), names))

    def _renamed(self, namespace: str) -> str:
        if namespace in self._exact:
            return self._exact[namespace]
        found = (rule.renamed(namespace) for rule in self._rules)
        return next((name for name in found if name is not None), namespace)
