"""Each distinct value is looked up once, and what is remembered does not grow without end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

import pytest

from penstock.steps.lookup.answer_memory import AnswerCache, Fact


class Echo:
    """Knows of every text what it is, and counts how often it was asked."""

    keys = ("text", "length")
    longest = 100

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def about(self, text: str) -> Mapping[str, Fact]:
        self.asked[text] += 1
        return {"text": text, "length": len(text)} if text else {}


def test_a_value_is_looked_up_once() -> None:
    echo = Echo()
    memory = AnswerCache(echo)
    for _ in range(3):
        memory.answers([b'"a"', b'"b"'])
    assert echo.asked == {"a": 1, "b": 1}


def test_of_too_many_values_the_longest_unused_one_is_forgotten() -> None:
    echo = Echo()
    memory = AnswerCache(echo, capacity=2)
    memory.answers([b'"a"', b'"b"', b'"a"', b'"c"', b'"a"', b'"b"'])
    assert echo.asked == {"a": 1, "b": 2, "c": 1}


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (b'"x"', "x"),
        (b'"\\u0078\\n\\""', 'x\n"'),
        ('"é🦊"'.encode(), "é🦊"),
        (b'"\\ud83e\\udd8a"', "🦊"),
        (b'"\\ud800"', "?"),
        (b'"\\u0000"', "\0"),
    ],
)
def test_a_question_is_what_its_json_says(question: bytes, text: str) -> None:
    echo = Echo()
    (answer,) = AnswerCache(echo).answers([question])
    assert list(echo.asked) == [text]
    assert answer is not None
    assert json.loads(answer.whole) == {"text": text, "length": len(text)}


def test_where_nothing_is_known_there_is_no_answer() -> None:
    assert AnswerCache(Echo()).answers([b'""']) == [None]


@pytest.mark.parametrize(
    ("present", "missing"),
    [(0b00, b'"text":"x","length":1'), (0b01, b'"length":1'), (0b10, b'"text":"x"'), (0b11, None)],
)
def test_only_members_that_are_missing_are_added(present: int, missing: bytes | None) -> None:
    (answer,) = AnswerCache(Echo()).answers([b'"x"'])
    assert answer is not None
    assert answer.beyond(present) == missing
