"""From questions found in a batch to the bytes that go into it: what is there stays, what is missing is added.

Most rows have the object around the answer and no answer yet: theirs is spliced in, those of several rules in one pass.
The others get a new value at the answer's path: an object that is there already with more members after its own, or
one whose surroundings are missing too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.json.arrow_text import quoted, verbatim_values
from penstock.json.find import Found, Spans, find
from penstock.json.paths import Path
from penstock.json.tokens import ABSENT, NULL, OBJECT, STRING
from penstock.steps.lookup.answer_memory import Answer, AnswerCache
from penstock.steps.lookup.splicing import Insertion, extended

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Question:
    """What one rule asks of a record, and where the answer goes."""

    memory: AnswerCache
    source: Path
    target: Path
    only_browsers: bool = False

    @property
    def around(self) -> Path:
        """The object that the answer is a member of."""
        return self.target[:-1]

    @property
    def paths(self) -> tuple[Path, ...]:
        """What must be found in the records."""
        return self.source, self.target, self.around

    def touches(self, other: Question) -> bool:
        """Whether an answer to one of the two could change what the other sees."""
        mine, theirs = (self.source, self.target), (other.source, other.target)
        return any(
            left[: len(right)] == right or right[: len(left)] == left
            for left, right in ((mine[1], theirs[0]), (mine[1], theirs[1]), (mine[0], theirs[1]))
        )


@dataclass(frozen=True)
class Filling:
    """The answers for a batch: ``insertion`` for most rows, and for the ``others`` values to put at the path."""

    insertion: Insertion
    others: Flags
    values: pa.BinaryArray | None
    """Null for rows that are not among the others; ``None`` if there are none."""


def filling(
    question: Question,
    data: pa.BinaryArray,
    found: Found,
    columns: Mapping[Path, int],
    wanted: Flags | None,
    in_turn: Flags,
) -> Filling | None:
    """The answers for the rows that are ``wanted`` (``None``: all), or ``None`` if there is nothing to add.

    Rows ``in_turn`` are among the others in any case: an earlier answer of theirs is, and members keep their order.

    ``found`` has the question's paths in ``data``, at ``columns``. A row asks if it has a text at the source and an
    object, null or nothing at the target. Each distinct text is asked once.
    """
    source, target, around = (columns[path] for path in question.paths)
    place = found.kind[:, target]
    lengths = found.value_end[:, source] - found.value_start[:, source]
    asking = (found.kind[:, source] == STRING) & (lengths <= question.memory.facts.longest)
    asking &= (place == ABSENT) | (place == NULL) | (place == OBJECT)
    if wanted is not None:
        asking &= wanted
    if not asking.any():
        return None
    encoded = verbatim_values(found, source).filter(pa.array(asking)).dictionary_encode()
    answers = question.memory.answers(encoded.dictionary.to_pylist())
    asked = np.full(len(asking), -1, np.int64)
    asked[asking] = encoded.indices.to_numpy()
    answered = asking.copy()
    answered[asking] = np.array([answer is not None for answer in answers])[asked[asking]]
    if not answered.any():
        return None
    at_hand = answered & (place == ABSENT) & (found.kind[:, around] == OBJECT) & ~in_turn
    key = quoted(question.target[-1])
    members = pa.array([key + b":" + answer.whole if answer else b"" for answer in answers], pa.binary())
    insertion = Insertion(np.where(at_hand, found.value_end[:, around], -1), asked, members)
    others = answered & ~at_hand
    if not others.any():
        return Filling(insertion, others, None)
    texts = pa.array([answer and answer.whole for answer in answers], pa.binary())
    which = np.where(others, asked, -1)
    meeting = np.flatnonzero(others & (place == OBJECT))
    if len(meeting):
        spans = found.value_start[meeting, target], found.value_end[meeting, target]
        lacking = _lacking(question, data.take(pa.array(meeting)), asked[meeting], answers)
        which[meeting] = len(texts) + np.arange(len(meeting))
        texts = pa.concat_arrays([texts, extended(found.buffer, *spans, lacking)])
    return Filling(insertion, others, texts.take(pa.array(which, mask=which < 0)))


def _lacking(
    question: Question, data: pa.BinaryArray, asked: Spans, answers: Sequence[Answer | None]
) -> pa.BinaryArray:
    """The members that the objects at the target do not have yet; null where they have them all."""
    keys = question.memory.facts.keys
    present = find(data, [(*question.target, key) for key in keys]).kind != ABSENT
    bits = present @ (1 << np.arange(len(keys), dtype=np.int64))
    cases, case = np.unique(np.stack([asked, bits]), axis=1, return_inverse=True)
    texts = [answer.beyond(there) if (answer := answers[which]) else None for which, there in cases.T.tolist()]
    return pa.array(texts, pa.binary()).take(pa.array(case.reshape(-1)))
