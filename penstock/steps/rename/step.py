"""Gives members of JSON objects other names in place, and moves those that go to another object."""

from __future__ import annotations

import pyarrow as pa

from penstock.json.members import rename_members
from penstock.json.paths import Path
from penstock.outcome import Outcome
from penstock.steps.contract import ArrowStep
from penstock.steps.edits import Editing
from penstock.steps.fields import field_path
from penstock.steps.rename.config import RenameConfig, new_path


class Rename(ArrowStep[RenameConfig]):
    """Names change all at once (two fields may change places); then moves to other objects follow, in order."""

    def __init__(self, config: RenameConfig) -> None:
        super().__init__(config)
        self._names: dict[Path, str] = {}
        self._moves: list[tuple[Path, Path]] = []
        for old, new in config.fields.items():
            source, target = field_path(old), new_path(old, new)
            if source == target:
                continue
            if source[:-1] == target[:-1]:
                self._names[source] = target[-1]
            else:
                self._moves.append((source, target))

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        renamed = rename_members(batch.column("data"), self._names)
        edited = Editing.begin(batch, renamed.data, renamed)
        for source, target in self._moves:
            edited = edited.moved(source, target, merge=False)
        return edited.outcome()
