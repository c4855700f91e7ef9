"""Events that are mapped together, beside the mapper of single events."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.dataset.event_mapping import EventMapper
from penstock.destinations.dataset.plain_events import PlainEvents
from penstock.destinations.sending.staged.keyed_row_file import Numbered
from penstock.record import Record, entries, placed

ROOM = 900
"""Bytes of a request: some events are too large."""


def read(text: bytes | None) -> Any:
    """JSON with the order of its members, and numbers with all of their digits."""
    if text is None:
        return None
    return json.loads(text, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=list)


def compare(mapper: EventMapper, *documents: bytes) -> list[bool]:
    """Which events were mapped together; they are the same as if each had been mapped alone."""
    batch = placed(entries(Record(each, namespace="web") for each in documents), 0, 7)
    times = batch.schema.get_field_index("timestamp")
    batch = batch.set_column(times, "timestamp", batch.column("offset").view(batch.column("timestamp").type))
    block, is_mapped = PlainEvents(mapper).map(batch, np.ones(len(documents), np.bool_))
    rows: list[int] = np.flatnonzero(is_mapped).tolist()
    if block is None:
        assert not rows
        return [False] * len(documents)
    for place, row in enumerate(rows):
        expected = mapper.map_event(documents[row], row + 7, (0, row + 7, 0))
        key = int(block.key[place])
        body = block.bodies[place].as_py()
        assert body.endswith(b",")
        assert len(body) <= mapper.most
        assert (read(body[:-1]), block.keys[key]) == (read(expected.body), expected.key)
        assert block.about[key] == expected.session_info
        assert [text_at(each, place) for each in block.definitions] == [expected.thread, expected.log]
        assert [int(part[place]) for part in block.places] == [0, row + 7, 0]
    return [row in rows for row in range(len(documents))]


def text_at(numbered: Numbered, place: int) -> bytes | None:
    number = int(numbered.numbers[place])
    return None if number < 0 else numbered.texts[number]


NAMES = st.sampled_from(
    ['"s"', '"a"', '"b"', '"a.b"', '"\\u0061"', '"a\\/"', '"k8s"', '"pod"', '"id"', '"sev"', '"severity"', '"thread"',
     '"log"', '"logfile"', '"serverHost"', '"__origServerHost"', '"_timestamp"', '"ts"', '"attrs"', '"penstock.id"',
     '"penstock"', '"\\ud800"', '"é"', '""']
)  # fmt: skip
SCALARS = st.sampled_from(
    ["null", "true", "false", "0", "-0", "3", "7", "12", "1.0", "1e2", "1.50", "1e-7", "1E400", "9" * 20, "9" * 310,
     "0.12345678901234567891", '"x"', '""', '"y"', '"ERROR"', '" warn "', '"5"', '"é\\u00e9\\n"', '"\\ud83d\\ude00"',
     '"\\ud800"', '"\\ud800x\\udc00"', '"2026-01-31T09:11:06Z"', '"2026-01-31T09:11:06.123456789+01:00"',
     '"2026-01-31T09:11:06.1234567891"', '"2026-01-31 09:11"', '"1677-01-01T00:00:00Z"', '"12"', f'"{"long " * 100}"']
)  # fmt: skip
SPACES = st.sampled_from(["", "", "", " ", "\n\t"])


def containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]") | objects(inner)


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    members = draw(st.lists(st.tuples(NAMES, SPACES, values, SPACES), max_size=5))
    return "{" + ",".join(f"{name}{before}:{value}{after}" for name, before, value, after in members) + "}"


DOCUMENTS = objects(st.recursive(SCALARS, containers, max_leaves=6))
GROUPS = st.sampled_from([(), ("s",), ("s", "k8s.pod"), ("a.b",), ("thread",), ("__origServerHost",), ("log.id",)])


@given(
    st.lists(DOCUMENTS | st.sampled_from(["", "[1]", "{", '{"a":1} ', '{"a":"\x01"}']), min_size=1, max_size=6),
    GROUPS,
    st.sampled_from([1, 3]),
    st.sampled_from([None, "penstock.id", "s", "serverHost"]),
    st.integers(6, 14),
)
def test_events_mapped_together_mean_the_same_as_alone(
    documents: list[str], group_by: tuple[str, ...], shares: int, id_attribute: str | None, restarted_at: int
) -> None:
    def record_id(partition: int, offset: int) -> str:
        return f"{'first' if offset < restarted_at else 'second-writer'}-{partition}-{offset}"

    mapper = EventMapper(group_by, "host", shares, id_attribute, ROOM, record_id)
    compare(mapper, *(document.encode() for document in documents))


@pytest.mark.parametrize(
    "document",
    [
        '{"s":"a","n":1}', '{ "s" : "a", "n": {"b": [1, {"c": null}], "d": {}}, "x": null }', '{"sev":"ERROR","x":0.1}',
        '{"_timestamp":"2026-01-31T09:11:06.123456789Z","logfile":"/x","thread":"t"}', '{"thread":7,"log":"l"}',
        '{"serverHost":"h","k8s":{"pod":"p"}}', '{"ts":"12","a":1}', '{"n":12345678901234567890123.4}', "{}",
        '{"t":"\\ud83d\\ude00 \\u00e9"}', '{"attrs":{"a":1}}', '{"_timestamp":5,"sev":"none","thread":true}',
    ],
)  # fmt: skip
def test_what_most_events_look_like_is_plain(document: str) -> None:
    mapper = EventMapper(("s", "k8s.pod"), "host", 1, "penstock.id", 10_000)
    assert compare(mapper, b'{"s":"a"}', document.encode(), b'{"s":"b"}') == [True, True, True]


@pytest.mark.parametrize(
    "document",
    [
        '{"a":1,"a":2}', '{"a.b":1,"a":{"b":2}}', '{"thread":{"id":"t"}}', '{"log":{"id":"l"}}', '{"t":"\\ud800"}',
        '{"ts":"12","attrs":{}}', '{"n":1e400}', '{"n":[[1e400]]}', '{"penstock.id":1}', '{"_timestamp":"yesterday"}',
        '{"t":"' + "x" * 10_000 + '"}', '{"a":' + "[" * 120 + "]" * 120 + "}", '{"a":1', "[]",
    ],
)  # fmt: skip
def test_what_is_unusual_goes_one_by_one(document: str) -> None:
    mapper = EventMapper(("s", "k8s.pod"), "host", 1, "penstock.id", 10_000)
    assert compare(mapper, b'{"s":"a"}', document.encode(), b'{"s":"b"}') == [True, False, True]
