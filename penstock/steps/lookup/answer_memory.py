"""Answers as JSON text that is built once per distinct question, and a cache of the latest ones.

A lookup is anything that knows ``Facts`` about a text. It never fails: what it does not know, it does not say.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

Fact = str | int | float | bool


class Facts(Protocol):
    """What is known about texts of one kind. The same text has the same facts, always."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key that an answer can have, in the order in which they are written."""
        ...

    @property
    def longest(self) -> int:
        """The longest question in bytes of JSON; nothing is known about longer ones."""
        ...

    def about(self, text: str) -> Mapping[str, Fact]:
        """Keys and values; empty if nothing is known. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    members: tuple[bytes, ...]
    """For each key of the lookup the JSON text of its member (``"city":"Berlin"``), or nothing."""
    whole: bytes
    """All of them as an object."""

    def beyond(self, present: int) -> bytes | None:
        """The members whose keys are not in the bit set ``present``, with commas between; ``None`` for none."""
        missing = [text for place, text in enumerate(self.members) if text and not present >> place & 1]
        return b",".join(missing) or None


class AnswerCache:
    """Caches answers by question, at most ``capacity``: drops the least recently used. Safe to share."""

    def __init__(self, facts: Facts, capacity: int = 20_000) -> None:
        self.facts = facts
        self._capacity = capacity
        self._answers: OrderedDict[bytes, Answer | None] = OrderedDict()
        self._lock = threading.Lock()

    def answers(self, questions: Iterable[bytes]) -> list[Answer | None]:
        """What is known about each JSON string of ``questions``; ``None`` where nothing is."""
        with self._lock:
            return [self._answer(question) for question in questions]

    def _answer(self, question: bytes) -> Answer | None:
        if question in self._answers:
            self._answers.move_to_end(question)
            return self._answers[question]
        answer = answer_of(self.facts.keys, self.facts.about(_text(question)))
        self._answers[question] = answer
        if len(self._answers) > self._capacity:
            self._answers.popitem(last=False)
        return answer


def answer_of(keys: tuple[str, ...], facts: Mapping[str, Fact]) -> Answer | None:
    if not facts:
        return None
    texts = (f'"{key}":{_encode(facts[key])}' if key in facts else "" for key in keys)
    members = tuple(text.encode("utf-8", "replace") for text in texts)
    return Answer(members, b"{" + b",".join(filter(None, members)) + b"}")


# One encoder: json.dumps with options makes a new one for every call.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _text(question: bytes) -> str:
    """What a JSON string says. Half a surrogate pair is no character, and no library takes it: it becomes ``?``."""
    text: str = json.loads(question.decode("utf-8", "replace"), strict=False)
    return text.encode("utf-8", "replace").decode()
