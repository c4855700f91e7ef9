"""The stream of changes, as the server words it: decoded the same however it is cut, and whatever comes again."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.record import Header, Record, placed, records
from penstock.sources.postgres.catalog.table_layout import Column, Layout
from penstock.sources.postgres.catalog.value_kinds import Kind
from penstock.sources.postgres.progress import SourceProgress
from penstock.sources.postgres.rows import row_entries
from penstock.sources.postgres.stream import follower
from penstock.sources.postgres.stream.follower import Decoder
from penstock.sources.postgres.stream.relations import Relation
from penstock.sources.postgres.stream_position import ChangePosition, lsn_text, parse_lsn
from tests.sources.postgres.messages import (
    UNCHANGED,
    begin,
    delete,
    end,
    insert,
    relation,
    truncate,
    update,
    wrapped,
)

KEYED, BARE, IGNORED = 100, 200, 300
RELATIONS = [
    relation(KEYED, "keyed", [("id", True), ("v", False)]),
    relation(BARE, "bare", [("a", True), ("b", True)], identity="f"),
    relation(IGNORED, "ignored", [("id", True)]),
]


class Known:
    """Tables of which nothing ever changes."""

    def wanted_layout(self, found: Relation) -> Layout | None:
        if found.table == "ignored":
            return None
        columns = tuple(Column(column.name, "text", Kind.TEXT) for column in found.columns)
        return Layout(found.oid, found.namespace, columns, () if found.identity == "f" else (found.columns[0].name,))

    def has_outgrown_copy(self, relation: Relation) -> bool:
        return False

    def void_table(self, namespace: str) -> None:
        raise AssertionError(f"{namespace} has not changed")


def decoded(
    batches: list[list[bytes]], taken: ChangePosition | None = None, book: SourceProgress | None = None
) -> list[Record]:
    """What a session makes of buffers of messages."""
    kept = book or SourceProgress("slot", taken=taken or ChangePosition())
    decoder = Decoder(kept, Known())
    found: list[Record] = []
    for messages in batches:
        for batch, position in decoder.decode(list(messages)):
            found += records(placed(batch, 0, len(found)))
            assert place(found[-1]) == position
    return found


def place(record: Record) -> ChangePosition:
    found = json.loads(record.headers[Header.POSITION])
    return ChangePosition(parse_lsn(found["commit"]), found["number"])


def essence(found: list[Record]) -> list[tuple[object, ...]]:
    return [(r.namespace, r.op, r.key, r.data, tuple(sorted(r.headers.items()))) for r in found]


VALUE = st.none() | st.text(st.sampled_from('a"\\\n\té'), max_size=6)
ID = st.sampled_from(["1", "2", "3"])
CHANGE = st.one_of(
    st.builds(lambda i, v: insert(KEYED, [i, v]), ID, VALUE),
    st.builds(lambda i, v: update(KEYED, [i, v]), ID, VALUE | st.just(UNCHANGED)),
    st.builds(lambda i, v, o: update(KEYED, [i, v], [o, None]), ID, VALUE, ID),
    st.builds(lambda i: delete(KEYED, [i, None]), ID),
    st.builds(lambda a, b, c: update(BARE, [a, b], [c, b], b"O"), VALUE, VALUE, VALUE),
    st.builds(lambda a, b: delete(BARE, [a, b], b"O"), VALUE, VALUE),
    st.builds(lambda i: insert(IGNORED, [i]), ID),
    st.sampled_from([truncate(KEYED), truncate(BARE, IGNORED, KEYED), wrapped(b"O" + bytes(9)), *RELATIONS]),
)
TRANSACTIONS = st.lists(st.lists(CHANGE, max_size=8), max_size=6)


def session(transactions: list[list[bytes]]) -> list[bytes]:
    """The messages of a session: relations are described, then transactions come in the order of their commits."""
    found = list(RELATIONS)
    for number, changes in enumerate(transactions):
        found += [begin(1000 + 10 * number, number), *changes, end(1000 + 10 * number)]
    return found


@given(TRANSACTIONS, st.lists(st.integers(0, 80), max_size=6))
def test_where_the_stream_is_cut_does_not_matter(transactions: list[list[bytes]], cuts: list[int]) -> None:
    messages = session(transactions)
    edges = sorted({0, len(messages), *(cut for cut in cuts if cut < len(messages))})
    pieces = [messages[a:b] for a, b in pairwise(edges)]
    assert essence(decoded(pieces)) == essence(decoded([messages]))


@given(TRANSACTIONS, st.data())
def test_what_comes_again_is_passed_over(transactions: list[list[bytes]], data: st.DataObject) -> None:
    """Whatever change was the last in the log, a new session that repeats all of it adds exactly the rest."""
    messages = session(transactions)
    whole = decoded([messages])
    known = data.draw(st.integers(0, len(whole)))
    taken = place(whole[known - 1]) if known else ChangePosition()
    assert essence(decoded([messages], taken)) == essence(whole[known:])


@given(TRANSACTIONS, st.integers(990, 1070))
def test_what_a_copy_has_in_it_is_passed_over(transactions: list[list[bytes]], snapshot: int) -> None:
    messages = session(transactions)
    book = SourceProgress("slot")
    book.note_copy(Layout(KEYED, "public.keyed", ()), snapshot, complete=True)
    expected = [r for r in decoded([messages]) if r.namespace != "public.keyed" or place(r).commit >= snapshot]
    assert essence(decoded([messages], book=book)) == essence(expected)


def test_a_row_says_what_is_known_of_it() -> None:
    found = decoded([session([[
        insert(KEYED, ["1", None]), update(KEYED, ["1", UNCHANGED]), update(KEYED, ["2", "x"], ["1", None]),
        delete(KEYED, ["2", None]), insert(BARE, ["1", "2"]), update(BARE, ["1", UNCHANGED], ["1", "2"], b"O"),
        truncate(KEYED, BARE),
    ]])])  # fmt: skip
    assert [(str(r.op), r.key, (r.data or b"").decode()) for r in found] == [
        ("insert", '{"id":"1"}', '{"id":"1","v":null}'),
        ("update", '{"id":"1"}', '{"id":"1"}'),
        ("update", '{"id":"2"}', '{"id":"2","v":"x"}'),
        ("delete", '{"id":"2"}', '{"id":"2"}'),
        ("insert", None, '{"a":"1","b":"2"}'),
        ("update", None, '{"a":"1","b":"2"}'),
        ("command", None, '{"truncate":true}'),
        ("command", None, '{"truncate":true}'),
    ]
    extra = [{name: r.headers[name] for name in ("unchanged", "old_key") if name in r.headers} for r in found]
    assert extra == [
        {},
        {"unchanged": '["v"]'},
        {"old_key": '{"id":"1"}'},
        {},
        {},
        {"old_key": '{"a":"1","b":"2"}'},
        {},
        {},
    ]


@given(st.integers(0, 2**62), st.integers(0, 3 * 10**16))
def test_a_position_is_written_as_postgres_and_rfc_3339_have_it(commit: int, micros: int) -> None:
    messages = [*RELATIONS, begin(commit, micros), insert(KEYED, ["1", "x"]), end(commit)]
    (found,) = decoded([messages])
    text = json.loads(found.headers[Header.POSITION])
    assert text["commit"] == lsn_text(commit)
    moment = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    assert text["committed"] == moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
    assert (text["slot"], text["table"], text["number"]) == ("slot", KEYED, 0)


def test_a_relation_may_change_between_two_changes_of_one_buffer() -> None:
    wider = relation(KEYED, "keyed", [("id", True), ("v", False), ("w", False)])
    messages = [*RELATIONS, begin(1000), insert(KEYED, ["1", "a"]), wider, insert(KEYED, ["2", "b", "c"]), end(1000)]
    assert [r.headers["columns"] for r in decoded([messages])] == [
        '{"id":"text","v":"text"}', '{"id":"text","v":"text","w":"text"}',
    ]  # fmt: skip


@pytest.mark.parametrize(
    "bad",
    [
        insert(999, ["1", "x"]),
        insert(KEYED, ["1"]),
        truncate(999),
        wrapped(b"S" + bytes(8)),
        wrapped(b"B"),
        wrapped(b"I"),
        insert(KEYED, ["1", "xyz"])[:-1],
        truncate(KEYED)[:-1],
        wrapped(b"U" + (KEYED).to_bytes(4, "big") + b"N\0\2t\x7f\xff\xff\xffx"),
    ],
)
def test_a_message_that_makes_no_sense_stops_the_stream(bad: bytes) -> None:
    with pytest.raises(PenstockError, match="PEN-PGS-018"):
        decoded([[*RELATIONS, begin(1000), bad, end(1000)]])


def test_a_row_too_large_for_the_log_is_named_and_counted_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (row_entries, follower):
        monkeypatch.setattr(module, "LARGEST_ROW", 5000)
    monkeypatch.setattr(row_entries, "FRAME_BYTES", 3000)
    small, large = insert(KEYED, ["1", "x"]), insert(KEYED, ["2", '"' * 2400])
    found = decoded([[*RELATIONS, begin(1000), small, large, small]])
    assert [Header.MALFORMED in r.headers for r in found] == [False, True, False]
    huge = decoded([[*RELATIONS, begin(1000)], [update(KEYED, ["2", "y" * 9000], ["1", None])]])
    for record in (found[1], *huge):
        assert record.key == '{"id":"2"}'
        assert record.data == b'{"id":"2"}'
        assert re.search(
            r"has \d{4} bytes, and one record of the log has room for 5000", record.headers[Header.MALFORMED]
        )
    assert huge[0].headers["old_key"] == '{"id":"1"}'
