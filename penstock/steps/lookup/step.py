"""Looks up distinct values once per batch and puts the answers into the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.json.edit import put
from penstock.json.find import Found, find
from penstock.json.paths import Path
from penstock.outcome import Outcome
from penstock.record import Header
from penstock.steps.contract import ArrowStep
from penstock.steps.edits import Editing
from penstock.steps.lookup.answer_memory import AnswerCache
from penstock.steps.lookup.config import LookupConfig, LookupName, LookupRule
from penstock.steps.lookup.databases import addresses, agents
from penstock.steps.lookup.filling import Filling, Flags, Question, filling
from penstock.steps.lookup.splicing import inserted

BROWSER_ENDPOINTS = pa.array(["js", "pixel"])
"""Whose events the implicit rules are for."""


class Lookup(ArrowStep[LookupConfig]):
    """No lookup fails a record: where nothing is known, or nothing can be put, it goes on as it came.

    ``memories`` is what rules ask, by name; by default what the process shares, with the databases as they are now.
    """

    def __init__(self, config: LookupConfig, memories: Mapping[LookupName, AnswerCache] | None = None) -> None:
        super().__init__(config)
        asked = _shared(config) if memories is None else memories
        questions = [_question(rule, asked, only_browsers=False) for rule in config.rules]
        implicit = [rule for rule in config.implicit_rules if rule.name in asked]
        questions += [_question(rule, asked, only_browsers=True) for rule in implicit]
        self._rounds = _rounds(questions)
        self._asks_browsers = any(question.only_browsers for question in questions)

    def __reduce__(self) -> tuple[Any, ...]:
        # Open databases stay where they are; at the other end the step takes what that process has.
        return type(self), (self.config,)

    def apply(self, batch: pa.RecordBatch) -> Outcome:
        if batch.num_rows == 0:
            return Outcome(batch)
        browsers = _from_browsers(batch) if self._asks_browsers else None
        editing: Editing | None = None
        for questions in self._rounds:
            paths = dict.fromkeys(path for question in questions for path in question.paths)
            found = find(editing.data if editing else batch.column("data"), list(paths))
            editing = editing or Editing.begin(batch, batch.column("data"), found)
            columns = {path: column for column, path in enumerate(paths)}
            editing = replace(editing, data=_answered(editing.data, found, columns, questions, browsers))
        assert editing is not None  # the config has a rule, or the implicit ones
        return editing.outcome()


def _answered(
    data: pa.BinaryArray,
    found: Found,
    columns: Mapping[Path, int],
    questions: Sequence[Question],
    browsers: Flags | None,
) -> pa.BinaryArray:
    fillings: list[tuple[Path, Filling]] = []
    in_turn = np.zeros(len(data), np.bool_)
    for question in questions:
        some = filling(question, data, found, columns, browsers if question.only_browsers else None, in_turn)
        if some is not None:
            fillings.append((question.target, some))
            in_turn |= some.others
    if fillings:
        data = inserted(data, [some.insertion for _, some in fillings])
    for target, some in fillings:
        if some.values is not None:
            # A row whose path leads through a number or a text is left as it is, which is what is promised.
            data = put(data, target, some.values).data
    return data


def _rounds(questions: Iterable[Question]) -> list[list[Question]]:
    """Questions that can be asked together, in order: one that an earlier answer touches waits for the next round."""
    rounds: list[list[Question]] = [[]]
    for question in questions:
        if any(question.touches(other) for other in rounds[-1]):
            rounds.append([])
        rounds[-1].append(question)
    return rounds


def _question(rule: LookupRule, memories: Mapping[LookupName, AnswerCache], only_browsers: bool) -> Question:
    return Question(memories[rule.name], rule.source_path, rule.target_path, only_browsers)


def _shared(config: LookupConfig) -> dict[LookupName, AnswerCache]:
    """What this process has for the rules. Without databases the implicit rule for addresses is not in force."""
    memories = {LookupName.USER_AGENT_PARSE: agents()}
    if config.databases or any(rule.name is LookupName.IP_LOOKUP for rule in config.rules):
        memories[LookupName.IP_LOOKUP] = addresses(config.databases)
    return memories


def _from_browsers(batch: pa.RecordBatch) -> Flags:
    endpoints = pc.map_lookup(batch.column("headers"), Header.ENDPOINT.value, "first")
    hits: Flags = pc.fill_null(pc.is_in(endpoints, value_set=BROWSER_ENDPOINTS), False).to_numpy(zero_copy_only=False)
    return hits
