"""Compaction of table changes: whoever reads what is left builds the same table as from all of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.maintenance.newest_entries import NewestEntries
from penstock.record import Header, Op, Record, entries

COLUMNS = {str(Header.COLUMNS): '{"id":"integer","n":"integer","big":"text"}'}
KEYED = {**COLUMNS, str(Header.KEY): '["id"]'}
Row = dict[str, object]


@dataclass
class Writer:
    """An application that writes into a table, and the records that its changes become."""

    keyed: bool = True

    def __post_init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.records: list[Record] = []

    def write(self, step: tuple[str, int, int]) -> None:
        what, this, other = step
        there, number = this in self.rows, len(self.records)
        if what not in ("truncate", "broken") and not there:
            self.rows[this] = {"id": this, "n": number, "big": f"big {number}"}
            self._tell(Op.INSERT, self.rows[this])
        elif what == "rewrite":
            self.rows[this].update(n=number, big=f"big {number}")
            self._tell(Op.UPDATE, self.rows[this])
        elif what in ("big", "n"):
            self.rows[this][what] = number
            (left_out,) = {"big", "n"} - {what}
            self._tell(Op.UPDATE, self.rows[this], left_out)
        elif what in ("move", "move in part") and other not in self.rows:
            self.rows[other] = {**self.rows.pop(this), "id": other, "n": number}
            self._tell(Op.UPDATE, self.rows[other], "big" if what == "move in part" else None, this)
        elif what == "delete":
            del self.rows[this]
            self._tell(Op.DELETE, {"id": this})
        elif what == "truncate":
            self.rows.clear()
            self.records.append(Record(b'{"truncate":true}', "shop", Op.COMMAND, headers=COLUMNS))
        elif what == "broken":
            headers = {**KEYED, str(Header.MALFORMED): "the row is too large"}
            self.records.append(Record(b"", "shop", Op.UPDATE, key=_key(this), headers=headers))

    def _tell(self, op: Op, row: Row, left_out: str | None = None, was: int | None = None) -> None:
        headers = dict(KEYED if self.keyed else COLUMNS)
        if left_out is not None:
            headers[str(Header.UNCHANGED)] = json.dumps([left_out])
        if was is not None:
            headers[str(Header.OLD_KEY)] = _key(was)
        data = {name: value for name, value in row.items() if name != left_out}
        key = _key(row["id"]) if self.keyed else None
        self.records.append(Record(json.dumps(data).encode(), "shop", op, key=key, headers=headers))


def _key(number: object) -> str:
    return json.dumps({"id": number}, separators=(",", ":"))


def built(records: Sequence[Record]) -> dict[object, Row]:
    """The table that a reader of the records ends with."""
    table: dict[object, Row] = {}
    for record in records:
        if record.op is Op.COMMAND:
            table.clear()
        elif Header.MALFORMED not in record.headers:
            data = json.loads(record.data or b"")
            old = record.headers.get(str(Header.OLD_KEY))
            row = table.pop(json.loads(old)["id"] if old else data["id"], {})
            if record.op is not Op.DELETE:
                table[data["id"]] = {**row, **data}
    return table


def compacted(records: Sequence[Record], droppable: int, room: int) -> list[Record]:
    with tempfile.TemporaryDirectory() as scratch:
        newest = NewestEntries(Path(scratch), len(records), droppable, room)
        for first in range(0, len(records), 5):
            newest.add(entries(records[first : first + 5]))
        gone = newest.superseded()
        return [record for place, record in enumerate(records) if place >= droppable or not gone[place]]


KINDS = ["rewrite", "big", "n", "move", "move in part", "delete", "truncate", "broken"]
steps = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.integers(0, 2)), max_size=40)


@given(steps, st.sampled_from([0.3, 0.8, 1.0]), st.sampled_from([0.5, 1.0]), st.sampled_from([2, 7, 1000]))
@settings(max_examples=400, deadline=None)
def test_a_reader_of_what_is_left_builds_the_same_table(
    plan: list[tuple[str, int, int]], share: float, later: float, room: int
) -> None:
    writer = Writer()
    for step in plan:
        writer.write(step)
    once = compacted(writer.records, int(len(writer.records) * share), room)
    again = compacted(once, int(len(once) * later), room)
    assert built(once) == built(again) == writer.rows


def test_rows_of_a_table_without_a_key_all_stay() -> None:
    writer = Writer(keyed=False)
    for number in range(5):
        writer.write(("rewrite", number, 0))
    assert compacted(writer.records, 5, 100) == writer.records


def test_updates_that_leave_out_the_same_column_do_not_gather() -> None:
    writer = Writer()
    writer.write(("rewrite", 1, 0))
    for _ in range(50):
        writer.write(("n", 1, 0))
    assert compacted(writer.records, 51, 100) == [writer.records[0], writer.records[-1]]
    writer.write(("rewrite", 1, 0))
    assert compacted(writer.records, 52, 100) == [writer.records[-1]]
