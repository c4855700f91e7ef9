"""Runs mapping rules over a batch, one rule after the other, on the bytes as they stand."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from penstock.json.find import find
from penstock.json.members import keep_members
from penstock.json.paths import Path, format_path, parse_path
from penstock.outcome import Outcome
from penstock.steps.contract import ArrowStep
from penstock.steps.edits import Editing
from penstock.steps.map.config import Action, MapConfig, Rule

ALWAYS_KEPT: tuple[Path, ...] = (("_timestamp",), ("eventn_ctx", "event_id"))
DEFAULT_CASTS = dict.fromkeys([("_timestamp",), ("eventn_ctx", "utc_time")], "timestamp with time zone")


class Map(ArrowStep[MapConfig]):
    """Casts change no data: they are the step's ``casts``, for destinations that have types."""

    def __init__(self, config: MapConfig) -> None:
        super().__init__(config)
        self._kept = None if config.keep_unmapped else _mapped(config.fields)
        self.casts = _casts(config.fields)

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        data = batch.column("data")
        if self._kept is None:
            editing = Editing.begin(batch, data, find(data, []))
        else:
            kept = keep_members(data, self._kept)
            editing = Editing.begin(batch, kept.data, kept)
        for rule in self.config.fields:
            editing = _edited(editing, rule)
        return editing.outcome()


def _edited(editing: Editing, rule: Rule) -> Editing:
    source, target = _path(rule.src), _path(rule.dst)
    match rule.action:
        case Action.MOVE:
            return editing.moved(source, target, merge=True)
        case Action.REMOVE:
            return editing.without(source)
        case Action.CONSTANT:
            text = json.dumps(rule.value, ensure_ascii=False, separators=(",", ":")).encode()
            return editing.put(target, pa.repeat(pa.scalar(text, pa.binary()), len(editing.data)))
        case Action.CAST:
            return editing


def _mapped(rules: Sequence[Rule]) -> list[Path] | None:
    """The fields of the incoming record that rules name as their source; ``None`` if one takes the whole record.

    Everything else goes before the first rule runs, so it does not matter what the rules then call their results.
    """
    paths = [*ALWAYS_KEPT]
    for rule in rules:
        if rule.action is Action.MOVE:
            paths.append(_path(rule.src))
        elif rule.action is Action.CAST:
            paths.append(_path(rule.src or rule.dst))
    return None if () in paths else paths


def _casts(rules: Sequence[Rule]) -> dict[str, str]:
    """Which type each path has after the last rule; a type moves along with its field."""
    types: dict[Path, str] = dict(DEFAULT_CASTS)
    for rule in rules:
        source, target = _path(rule.src), _path(rule.dst)
        if rule.action is Action.MOVE:
            moving = {path: kind for path, kind in types.items() if path[: len(source)] == source}
            types = {path: kind for path, kind in types.items() if path not in moving or path in DEFAULT_CASTS}
            types |= {(*target, *path[len(source) :]): kind for path, kind in moving.items()}
        if rule.type and rule.action in (Action.MOVE, Action.CONSTANT):
            types[target] = rule.type
        elif rule.type and rule.action is Action.CAST:
            types[_path(rule.src or rule.dst)] = rule.type
    # Destinations know the defaults themselves; only what a rule asked for, or moved, is said.
    return {format_path(path): kind for path, kind in types.items() if DEFAULT_CASTS.get(path) != kind}


def _path(text: str | None) -> Path:
    return parse_path(text or "/")
