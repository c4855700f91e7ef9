"""From a request's body to its bundles of state: the exact bytes of each one's data, and what describes it.

A body that is not JSON, or not made of objects, is refused as a whole: ``BadBody`` names the place. An object that is
no good bundle (no version, the source of somebody else) is kept as it was sent, as a ``Malformed``, and does not affect
the others. Importing this module loads the compiler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import orjson

from penstock.conflation.bundle_rules import TEXTS, bundle_problem
from penstock.record import Header
from penstock.sources.http.body.body_events import Malformed
from penstock.sources.http.body.json_objects import Verbatim, find_objects, is_text, text_of
from penstock.sources.http.config import LimitsConfig

_OWN_NAMES = [*map(str, TEXTS), "data"]


class SentBundle(NamedTuple):
    """A bundle as the log takes it."""

    key: str
    headers: tuple[tuple[str, str], ...]
    data: bytes


class FoundBundle(NamedTuple):
    """A bundle that is not checked yet."""

    sent: bytes
    """What to keep of it if it is no good."""
    texts: Mapping[Header, str | None]
    not_text: Collection[Header]
    """Which of them are other values; then the text is how they are written."""
    data: Verbatim
    problem: str | None = None
    """What is known to be wrong with it."""
    described_apart: bool = False
    """What describes it is not in ``sent``."""


def find_bundles(body: bytes, limits: LimitsConfig) -> Iterator[FoundBundle]:
    """The bundles of a JSON body, one object or an array of them."""
    for sent, values in find_objects(body, limits).members(_OWN_NAMES):
        yield describe(sent, dict(zip(TEXTS, values, strict=False)), values[-1])


def describe(sent: bytes, values: Mapping[Header, Verbatim], data: Verbatim, problem: str | None = None) -> FoundBundle:
    """A bundle by its members as they are written; a null is none."""
    texts: dict[Header, str | None] = {}
    not_text: list[Header] = []
    for name, value in values.items():
        if value is None or value == b"null":
            texts[name] = None
        elif is_text(value):
            texts[name] = text_of(value)
        else:
            texts[name] = value.decode()
            not_text.append(name)
    return FoundBundle(sent, texts, not_text, data, problem)


def check_bundles(found: Iterable[FoundBundle], own_source: str | None) -> Iterator[SentBundle | Malformed]:
    """Each bundle in its turn. ``own_source`` is the only one that the sender may speak for; ``None``: for any."""
    for index, (sent, texts, not_text, data, known, described_apart) in enumerate(found):
        problem = known or bundle_problem(texts, not_text, data is not None)
        source = texts[Header.SOURCE]
        if problem is None and own_source is not None and source != own_source:
            problem = f"its source is '{source}', and the token speaks for '{own_source}' alone"
        headers = tuple([(str(name), text) for name, text in texts.items() if text is not None])
        if problem is not None or data is None:
            yield Malformed(sent, f"bundle {index}: {problem}", headers if described_apart else ())
        else:
            key = orjson.dumps([source, texts[Header.KIND], texts[Header.VERSION]]).decode()
            yield SentBundle(key, headers, data)
