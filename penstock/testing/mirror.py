"""What every destination owes that can mirror tables, change by change."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from penstock.destinations.contract import AnyDestination, Part, Receipt
from penstock.outcome import Outcome
from penstock.record import Mode, Op, Record, entries, placed
from penstock.registry import Kind, component
from penstock.testing.crash import crash_at
from penstock.testing.destination import batch, delivered_rows

COLUMNS = {"id": "bigint", "name": "text", "price": "numeric(12,2)", "note": "text"}
Row = dict[str, Any]


class Source:
    """Changes of one table, as a source sends them."""

    def __init__(
        self,
        columns: Mapping[str, str] | None = None,
        key: Sequence[str] = ("id",),
        namespace: str = "public.users",
    ) -> None:
        self.columns = COLUMNS if columns is None else columns
        self.key = key
        self.namespace = namespace

    def insert(self, **row: Any) -> Record:
        return self._record(Op.INSERT, row)

    def update(self, old: Row | None = None, **row: Any) -> Record:
        """With the members that it leaves unchanged left out of ``row``."""
        headers = {} if old is None else {"old_key": json.dumps(old)}
        left_out = [name for name in self.columns if name not in row]
        if left_out:
            headers["unchanged"] = json.dumps(left_out)
        return self._record(Op.UPDATE, row, headers)

    def delete(self, **row: Any) -> Record:
        return self._record(Op.DELETE, row)

    def truncate(self) -> Record:
        return self._record(Op.COMMAND, {"truncate": True})

    def begin(self) -> Record:
        """The first copy of the table into a log begins."""
        return self._record(Op.COMMAND, {"truncate": True, "first": True})

    def complete(self) -> Record:
        return Record(None, self.namespace, Op.NOOP, Mode.COMPLETE)

    def _record(self, op: Op, data: Row, headers: Mapping[str, str] | None = None) -> Record:
        said = {"columns": json.dumps(self.columns)} if self.columns else {}
        said |= {"key": json.dumps(self.key)} if self.key else {}
        return Record(json.dumps(data).encode(), self.namespace, op, headers={**said, **(headers or {})})


HANDMADE = ["users", "orders", "people", "checked"]
"""Tables that tests make themselves before a mirror of them begins."""


class Target(ABC):
    """A database that a destination writes to, looked at from outside."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The options of a destination that writes here, as YAML could have them."""

    def destination(self, **options: Any) -> AnyDestination:
        found = component(Kind.DESTINATION, self.config()["type"])
        built: AnyDestination = found.implementation_class()(
            found.config_class().model_validate({"adopt": HANDMADE, **self.config(), **options})
        )
        return built

    @abstractmethod
    def run(self, statement: str) -> None: ...

    @abstractmethod
    def rows(self, table: str = "users", order: str = "1") -> list[Row]: ...

    @abstractmethod
    def columns(self, table: str = "users") -> dict[str, str]: ...


class Replica:
    """A mirror and the batches it was given so far."""

    def __init__(self, target: Target, folder: Path, casts: Mapping[str, str] | None = None, **options: Any) -> None:
        self.target = target
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.destination = target.destination(load="mirror", **options)
        self.casts = casts or {}
        self.number = self.offset = 0

    def stage(self, records: Sequence[Record], size: int = 10_000) -> tuple[list[Part], list[Outcome]]:
        stager = self.destination.stager(self.folder, self.casts)
        outcomes = []
        for start in range(0, len(records), size):
            rows = entries(records[start : start + size])
            outcomes.append(stager.add(placed(rows, 0, self.offset + start)))
        return stager.finish(), outcomes

    def load(self, *records: Record, size: int = 10_000) -> Receipt:
        parts, outcomes = self.stage(records, size)
        receipt = self.destination.write(batch(self.number), parts)
        assert [table.unavailable for table in receipt.tables if table.unavailable] == []
        assert delivered_rows(receipt) == sum(outcome.kept.num_rows for outcome in outcomes)
        self.offset += len(records)
        self.number += 1
        return receipt


def write_and_be_killed(target: Target, parts: Sequence[Part], point: str) -> None:
    """Write batch 1 in a process that ends at a named point."""
    argument = json.dumps([{**target.config(), "load": "mirror"}, [vars(part) for part in parts]])
    environment = {**os.environ, "PENSTOCK_FAULTS": f"{point}=kill"}
    killed = subprocess.run([sys.executable, "-c", _WRITE, argument], env=environment)
    assert killed.returncode == -signal.SIGKILL


def failures(receipt: Receipt) -> list[tuple[int, str, str]]:
    """Offset, code and message of each."""
    return [(row["offset"], row["code"], row["message"]) for found in receipt.failures for row in found.to_pylist()]


USERS = Source()

# Any changes at all

WIDE = {"id": "integer", "part": "text", "n": "bigint", "t": "text", "doc": "jsonb", "odd": "integer"}
KEY = st.fixed_dictionaries({"id": st.integers(0, 2), "part": st.sampled_from(["a", 'B,"\n'])})
KEYS = ({"id": 0, "part": "a"}, {"id": 1, "part": "a"})
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "t": st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4),
        "odd": st.none() | st.integers(0, 9) | st.dates().map(str),
        "doc": st.none() | st.recursive(st.booleans() | st.integers(0, 9), lambda inner: st.lists(inner, max_size=2)),
    },
)
CHANGE = st.one_of(
    st.tuples(st.just("insert"), KEY, VALUES),
    st.tuples(st.just("update"), KEY, VALUES),
    st.tuples(st.just("delete"), KEY),
    st.tuples(st.just("move"), KEY, KEY, VALUES),
    st.tuples(st.just("truncate")),
)
BATCHES = st.lists(st.lists(CHANGE, min_size=1, max_size=8), max_size=4)


class Model:
    """A table as a dictionary, and the records that bring another one to the same state.

    The type of one column changes to and fro: what is no integer has no place in it, and is kept aside.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.rows: dict[tuple[Any, ...], Row] = {}

    def take(self, change: tuple[Any, ...]) -> Record:
        odd = change[-1].get("odd") if change[0] in ("insert", "update", "move") else None
        source = Source(WIDE | ({"odd": "date"} if isinstance(odd, str) else {}), ["id", "part"], self.namespace)
        match change:
            case ("insert", key, values):
                self._put(key, key, values)
                return source.insert(**key, **values)
            case ("update", key, values):
                self._put(key, key, values)
                return source.update(**key, **values)
            case ("move", old, key, values):
                if self._is_there(key) and not self._is_there(old):
                    # No source moves a row that it does not have; over another one it would look like a change that
                    # is applied again.
                    return self.take(("update", key, values))
                self._put(old, key, values)
                return source.update(old, **key, **values)
            case ("delete", key):
                self.rows.pop((key["id"], key["part"]), None)
                return source.delete(**key)
            case _:
                self.rows.clear()
                return source.truncate()

    def expected(self) -> list[Row]:
        whole = [dict.fromkeys(WIDE) | row for row in self.rows.values()]
        aside = [{"odd": row["odd"]} if isinstance(row["odd"], str) else None for row in whole]
        return [
            row | {"odd": None if kept else row["odd"], "_unmapped": kept}
            for row, kept in zip(whole, aside, strict=True)
        ]

    def _is_there(self, key: Row) -> bool:
        return (key["id"], key["part"]) in self.rows

    def _put(self, old: Row, key: Row, values: Row) -> None:
        there = self.rows.pop((old["id"], old["part"]), {})
        self.rows[key["id"], key["part"]] = {**there, **key, **values}


def ends_like_its_source(replica: Replica, batches: list[list[tuple[Any, ...]]]) -> None:
    """The rule that every engine is tried with: ``@given(batches=BATCHES)``. Each time it is another table."""
    table = f"t{replica.number}"
    model = Model(f"public.{table}")
    # One row that has it all, so that there are all columns to look at.
    replica.load(model.take(("insert", {"id": -1, "part": ""}, {"n": 0, "t": "", "doc": [1], "odd": 1})))
    for changes in batches:
        replica.load(*map(model.take, changes))
    found = replica.target.rows(table)
    for row in found:
        row["doc"] = json.loads(row["doc"]) if isinstance(row["doc"], str) else row["doc"]
        row["_unmapped"] = aside(row)
    assert sorted(found, key=repr) == sorted(model.expected(), key=repr)


_WRITE = """
import json, sys
from penstock.destinations.contract import Batch, Part
from penstock.registry import Kind, component

config, parts = json.loads(sys.argv[1])
found = component(Kind.DESTINATION, config["type"])
destination = found.implementation_class()(found.config_class().model_validate(config))
destination.write(Batch("ledger-a", "shop", 1, {}), [Part(**part) for part in parts])
"""


class MirrorContract:
    """For destinations built on ``penstock.destinations.sql`` that offer ``load: mirror``.

    Gives: ``text``, ``bigint`` and the fixture ``target``; ``with_key`` if the engine spells it otherwise. Beside it,
    ``ends_like_its_source`` is a rule to try with any changes at all: ``@given(batches=BATCHES)``.
    Asserted: inserts, updates, deletes, moved keys and truncates end in the rows of the source, wherever they are cut
    into batches, with a key or without one; columns and types follow those of the source; a value that fits no column
    is kept aside with all its digits; a change that cannot be applied fails alone; kills and repeated batches change
    nothing twice, and bring no deleted row back.
    """

    text: ClassVar[str]
    """The engine's name of the type of texts."""
    bigint: ClassVar[str]
    """The engine's name of the type of integers of 64 bits."""

    @pytest.fixture
    def target(self, tmp_path: Path) -> Target:
        """An empty database, made for this test."""
        raise NotImplementedError

    @pytest.fixture
    def replica(self, target: Target, tmp_path: Path) -> Replica:
        return Replica(target, tmp_path / "stage")

    # What changes do

    def test_changes_of_one_row_are_many_in_and_one_written(self, replica: Replica) -> None:
        source = Source()
        changes = [source.insert(id=1, name="a"), *(source.update(id=1, name=name) for name in "bcd")]
        (table,) = replica.load(*changes, source.insert(id=2, name="z")).tables
        assert (table.rows, table.merged) == (5, 3)

    def test_rows_are_inserted_updated_and_deleted_by_their_key(self, replica: Replica) -> None:
        replica.load(*(USERS.insert(id=n, name=f"n{n}", price=n, note=None) for n in range(4)))
        replica.load(
            USERS.update(id=1, name="other", price=1.5, note="x"), USERS.delete(id=2), USERS.insert(id=9, name="new")
        )
        assert [(row["id"], row["name"], row["note"]) for row in replica.target.rows()] == [
            (0, "n0", None), (1, "other", "x"), (3, "n3", None), (9, "new", None)
        ]  # fmt: skip

    def test_an_update_to_null_arrives_as_null(self, replica: Replica) -> None:
        replica.load(USERS.insert(id=1, name="a", price=1, note="x"))
        replica.load(USERS.update(id=1, name=None, price=None, note="x"))
        (row,) = replica.target.rows()
        assert (row["name"], row["price"], row["note"]) == (None, None, "x")

    def test_what_an_update_leaves_out_keeps_its_value(self, replica: Replica) -> None:
        replica.load(USERS.insert(id=1, name="a", price=1, note="long"), USERS.insert(id=2, name="b", note="b"))
        replica.load(USERS.update(id=1, name="b"), USERS.update(id=1, price=7), USERS.update(id=2, name=None, note="c"))
        found = [(row["name"], row["price"], row["note"]) for row in replica.target.rows()]
        assert found == [("b", 7, "long"), (None, None, "c")]

    def test_a_null_that_a_step_made_of_what_is_unchanged_changes_nothing(self, replica: Replica) -> None:
        replica.load(USERS.insert(id=1, name="a", note="long"))
        update = USERS.update(id=1, name=None)
        replica.load(replace(update, data=b'{"id":1,"name":null,"price":null,"note":null}'))
        (row,) = replica.target.rows()
        assert (row["name"], row["note"]) == (None, "long")

    def test_changes_of_one_batch_count_in_their_order(self, replica: Replica) -> None:
        replica.load(
            USERS.insert(id=1, name="first", note="x"), USERS.delete(id=1), USERS.insert(id=1, name="second"),
            USERS.insert(id=2, name="gone"), USERS.update(id=2, name="still"), USERS.delete(id=2),
            USERS.insert(id=3, name="a"), USERS.update(id=3, name="b"), USERS.update(id=3, name="c"),
        )  # fmt: skip
        assert [(row["id"], row["name"], row["note"]) for row in replica.target.rows()] == [
            (1, "second", None), (3, "c", None)
        ]  # fmt: skip

    def test_a_row_with_another_key_moves_with_all_it_has(self, replica: Replica) -> None:
        replica.load(*(USERS.insert(id=n, name=f"n{n}", price=n, note=f"long {n}") for n in (1, 2, 3)))
        replica.load(
            USERS.update({"id": 1}, id=10, name="ten"),
            USERS.update({"id": 3}, id=4, name="four"), USERS.update({"id": 2}, id=3, name="three"),
        )  # fmt: skip
        assert [(row["id"], row["name"], row["price"], row["note"]) for row in replica.target.rows()] == [
            (3, "three", 2, "long 2"), (4, "four", 3, "long 3"), (10, "ten", 1, "long 1")
        ]  # fmt: skip

    def test_a_row_that_has_moved_keeps_all_it_has_when_it_is_moved_again(self, replica: Replica) -> None:
        """A route that was rewound applies changes again."""
        replica.load(*(USERS.insert(id=n, name=f"n{n}", price=n, note=f"long {n}") for n in (1, 2)))
        moves = [USERS.update({"id": n}, id=n + 100, name="moved") for n in (1, 2)]
        replica.load(*moves)
        replica.load(*moves, USERS.update({"id": 7}, id=107, name="never seen"))
        assert [(row["id"], row["name"], row["price"], row["note"]) for row in replica.target.rows()] == [
            (101, "moved", 1, "long 1"), (102, "moved", 2, "long 2"), (107, "never seen", None, None)
        ]  # fmt: skip
        replica.load(USERS.delete(id=101), USERS.update({"id": 8}, id=101, name="another"))
        assert replica.target.rows()[0]["note"] is None, "it is not the deleted row's"

    def test_two_rows_can_trade_their_keys(self, replica: Replica) -> None:
        replica.load(USERS.insert(id=1, note="one"), USERS.insert(id=2, note="two"))
        replica.load(USERS.update({"id": 1}, id=-1), USERS.update({"id": 2}, id=1), USERS.update({"id": -1}, id=2))
        assert [(row["id"], row["note"]) for row in replica.target.rows()] == [(1, "two"), (2, "one")]

    def test_a_truncate_empties_the_table_and_what_follows_stays(self, replica: Replica) -> None:
        replica.load(USERS.insert(id=1), USERS.insert(id=2))
        replica.load(USERS.insert(id=3), USERS.update(id=1, name="x"), USERS.truncate(), USERS.insert(id=1, note="new"))
        assert [(row["id"], row["note"]) for row in replica.target.rows()] == [(1, "new")]
        replica.load(USERS.truncate())
        assert replica.target.rows() == []

    @pytest.mark.parametrize("key", [("id",), ()])
    def test_a_first_copy_removes_what_was_there_before_it(self, replica: Replica, key: tuple[str, ...]) -> None:
        table = Source(key=key)
        replica.load(table.begin(), table.insert(id=1), table.insert(id=2))
        anew = Replica(replica.target, replica.folder)
        parts, _ = anew.stage([table.begin(), table.insert(id=1), table.insert(id=3)])
        receipt = anew.destination.write(batch(0, scope="another ledger"), parts)
        assert [(found.rows, found.merged, found.unavailable) for found in receipt.tables] == [(3, 0, None)]
        assert [row["id"] for row in replica.target.rows()] == [1, 3]

    def test_a_first_copy_leaves_rows_that_the_route_has_brought_from_elsewhere(self, replica: Replica) -> None:
        replica.load(USERS.begin(), USERS.insert(id=1), USERS.begin(), USERS.insert(id=2))
        replica.load(USERS.begin(), USERS.insert(id=3))
        assert [row["id"] for row in replica.target.rows()] == [1, 2, 3]

    def test_a_first_copy_of_one_of_several_sources_leaves_the_rows_of_the_others(
        self, target: Target, tmp_path: Path
    ) -> None:
        other = Source(namespace="sales.users")
        Replica(target, tmp_path / "stage", table="users").load(USERS.begin(), USERS.insert(id=1))
        replica = Replica(target, tmp_path / "stage", table="users")
        replica.number = 1
        receipt = replica.load(other.begin(), other.insert(id=2))
        assert failures(receipt) == []
        assert [row["id"] for row in target.rows()] == [1, 2]

    def test_a_first_copy_of_an_empty_table_makes_nothing(self, replica: Replica) -> None:
        replica.load(USERS.begin())
        assert [table.rows for table in replica.load(USERS.insert(id=1)).tables] == [1]

    def test_an_update_of_a_row_that_was_never_seen_makes_it(self, replica: Replica) -> None:
        replica.load(USERS.insert(id=1, name="a"))
        replica.load(USERS.update(id=2, name="b"), USERS.update({"id": 3}, id=4, name="c"), USERS.delete(id=5))
        assert [(row["id"], row["name"]) for row in replica.target.rows()] == [(1, "a"), (2, "b"), (4, "c")]

    def test_rows_that_come_again_are_there_once(self, replica: Replica) -> None:
        """A copy that was broken off is done again."""
        rows = [USERS.insert(id=n, name=str(n)) for n in range(5)]
        replica.load(*rows[:3])
        replica.load(*rows)
        assert [row["id"] for row in replica.target.rows()] == [0, 1, 2, 3, 4]

    def test_records_that_carry_no_row_are_skipped(self, replica: Replica) -> None:
        records = [
            USERS.insert(id=1), USERS.complete(), Record(b'{"create":"index"}', "public.users", Op.COMMAND),
            Record(b"{}", "public.users"),
        ]  # fmt: skip
        parts, outcomes = replica.stage(records)
        assert [(outcome.kept.num_rows, outcome.skipped) for outcome in outcomes] == [(1, 3)]
        assert [part.rows for part in parts] == [1]

    def test_changes_before_any_row_make_no_table(self, replica: Replica) -> None:
        receipt = replica.load(USERS.delete(id=1), USERS.truncate())
        assert receipt.rows == 2
        assert replica.target.columns() == {}

    def test_a_key_of_several_columns_tells_rows_apart(self, replica: Replica) -> None:
        lines = Source({"shop": "text", "number": "integer", "n": "integer"}, key=["shop", "number"])
        replica.load(*(lines.insert(shop=shop, number=number, n=0) for shop in "ab" for number in (1, 2)))
        replica.load(
            lines.update(shop="a", number=2, n=5), lines.delete(shop="b", number=1),
            lines.update({"shop": "b", "number": 2}, shop="c", number=2),
        )  # fmt: skip
        assert [tuple(row.values()) for row in replica.target.rows(order="shop, number")] == [
            ("a", 1, 0), ("a", 2, 5), ("c", 2, 0)
        ]  # fmt: skip

    # Tables without a key

    def test_without_a_key_one_equal_row_goes_for_each_change(self, replica: Replica) -> None:
        log = Source({"a": "integer", "b": "text"}, key=())
        replica.load(*[log.insert(a=1, b="x")] * 3, *[log.insert(a=2, b=None)] * 2, log.insert(a=3, b="y"))
        replica.load(
            log.delete(a=1, b="x"), log.update({"a": 2, "b": None}, a=2, b="z"), log.update({"a": 3, "b": "y"}, a=4)
        )  # fmt: skip
        assert [tuple(row.values()) for row in replica.target.rows(order="a, b")] == [
            (1, "x"), (1, "x"), *sorted([(2, "z"), (2, None)], key=lambda row: row[1] is None), (4, "y")
        ]  # fmt: skip

    def test_without_a_key_a_change_that_finds_no_row_fails_alone(self, replica: Replica) -> None:
        log = Source({"a": "integer", "b": "text"}, key=())
        replica.load(*[log.insert(a=1, b="x")] * 2, log.insert(a=2, b=None))
        receipt = replica.load(
            *[log.delete(a=1, b="x")] * 3,
            log.update({"a": 7, "b": "not here"}, a=8, b="never"),
            log.delete(a=8, b="never"),
            log.insert(a=9, b="new"), log.delete(a=9, b="new"), log.delete(a=9, b="new"),
            log.update({"a": 2, "b": None}, a=3, b="moved"),
        )  # fmt: skip
        assert sorted((offset, code) for offset, code, _ in failures(receipt)) == [
            (offset, "no_row") for offset in (5, 6, 7, 10)
        ]
        assert [tuple(row.values()) for row in replica.target.rows()] == [(3, "moved")]
        receipt = replica.load(log.truncate(), log.delete(a=3, b="moved"), log.insert(a=4, b="last"))
        assert [(offset, code) for offset, code, _ in failures(receipt)] == [(13, "no_row")]
        assert [tuple(row.values()) for row in replica.target.rows()] == [(4, "last")]

    def test_without_a_key_rows_that_are_equal_only_here_go_one_for_each_change(self, replica: Replica) -> None:
        """The source tells 1.0 from 1.00, and 0 from -0."""
        numbers = Source({"n": "numeric(12,2)", "f": "double precision"}, key=())
        rows = [
            replace(numbers.insert(), data=b'{"n":%b,"f":%b}' % values)
            for values in ((b"1.0", b"0"), (b"1.00", b"0"), (b"1", b"0"), (b"2", b"0.0"), (b"2", b"-0.0"), (b"7", b"7"))
        ]
        replica.load(*rows, rows[1])
        assert failures(replica.load(*(replace(row, op=Op.DELETE) for row in rows[:5]))) == []
        assert sorted((row["n"], row["f"]) for row in replica.target.rows()) == [(1, 0), (7, 7)]

    def test_without_a_key_an_update_that_names_no_row_fails(self, replica: Replica) -> None:
        log = Source({"a": "integer"}, key=())
        receipt = replica.load(log.insert(a=1), log.update(a=2))
        assert [(offset, code) for offset, code, _ in failures(receipt)] == [(1, "no_key")]
        assert [row["a"] for row in replica.target.rows()] == [1]

    def test_a_table_can_get_a_key_and_lose_it_again(self, replica: Replica) -> None:
        nameless = Source({"id": "bigint", "name": "text"}, key=())
        named = Source({"id": "bigint", "name": "text"})
        replica.load(
            nameless.insert(id=1, name="a"), nameless.insert(id=2, name="b"),
            named.update(id=1, name="c"), named.delete(id=2),
            nameless.insert(id=1, name="c"), nameless.delete(id=1, name="c"), nameless.insert(id=1, name="c"),
        )  # fmt: skip
        assert [tuple(row.values()) for row in replica.target.rows()] == [(1, "c"), (1, "c")]

    # Tables and columns

    def test_columns_have_the_source_s_order_and_types(self, replica: Replica) -> None:
        replica.load(USERS.delete(id=0), USERS.insert(note="x", id=1, price=None, name=None))
        assert list(replica.target.columns()) == ["id", "name", "price", "note"]
        assert replica.target.columns()["name"] == self.text
        assert replica.target.columns()["id"] == self.bigint

    def test_tables_are_named_after_the_source_s(self, replica: Replica) -> None:
        replica.load(USERS.insert(id=1), Source(namespace='sales."Odd Name"').insert(id=2))
        assert [row["id"] for row in replica.target.rows("users")] == [1]
        assert [row["id"] for row in replica.target.rows("_odd_name_")] == [2]

    def test_a_template_keeps_tables_of_two_schemas_apart(self, target: Target, tmp_path: Path) -> None:
        replica = Replica(target, tmp_path / "stage", table="{{ namespace }}")
        replica.load(USERS.insert(id=1), Source(namespace="sales.users").insert(id=2))
        assert [row["id"] for row in target.rows("public_users")] == [1]
        assert [row["id"] for row in target.rows("sales_users")] == [2]

    def test_two_tables_of_one_name_never_meet_unseen(self, replica: Replica) -> None:
        replica.load(USERS.insert(id=1))
        others = Source(namespace="sales.users")
        for records in ([others.insert(id=2)], [USERS.insert(id=3), others.truncate()]):
            parts, _ = replica.stage(records)
            (receipt,) = replica.destination.write(batch(1), parts).tables
            assert receipt.unavailable is not None
            assert "mirrors public.users, and sales.users would go there too" in str(receipt.unavailable)
        assert [row["id"] for row in replica.target.rows()] == [1]

    def test_two_tables_go_into_one_if_that_is_asked_for(self, target: Target, tmp_path: Path) -> None:
        replica = Replica(target, tmp_path / "stage", table="users")
        replica.load(USERS.insert(id=1), Source(namespace="sales.users").insert(id=2))
        assert [row["id"] for row in target.rows()] == [1, 2]

    def test_a_table_with_rows_of_several_sources_is_not_emptied_for_one(self, target: Target, tmp_path: Path) -> None:
        replica = Replica(target, tmp_path / "stage", table="users")
        other = Source(namespace="sales.users")
        replica.load(USERS.insert(id=1), USERS.truncate(), USERS.insert(id=2))
        assert [row["id"] for row in target.rows()] == [2]
        replica.load(other.insert(id=3))
        receipt = replica.load(USERS.truncate(), USERS.insert(id=4), other.insert(id=5))
        (failed,) = failures(receipt)
        assert (failed[0], failed[1], "public.users, sales.users" in failed[2]) == (4, "shared_table", True)
        assert [row["id"] for row in target.rows()] == [2, 3, 4, 5]

    def test_a_frozen_table_keeps_new_columns_aside(self, target: Target, tmp_path: Path) -> None:
        replica = Replica(target, tmp_path / "stage", schema="freeze")
        replica.load(Source({"id": "bigint", "a": "integer"}).insert(id=1, a=1))
        later = Source({"id": "bigint", "a": "bigint", "b": "text"})
        replica.load(later.insert(id=2, a=2**40, b="x"), later.insert(id=3, a=3, b=None))
        assert [(row["id"], row["a"], aside(row)) for row in target.rows()] == [
            (1, 1, None), (2, None, {"a": 2**40, "b": "x"}), (3, 3, None)
        ]  # fmt: skip
        replica.load(later.update(id=2, b="y"))
        assert [aside(row) for row in target.rows()] == [None, {"a": 2**40, "b": "y"}, None]

    def test_columns_beyond_the_most_are_kept_aside_but_for_the_key(self, target: Target, tmp_path: Path) -> None:
        replica = Replica(target, tmp_path / "stage", max_columns=2)
        replica.load(Source({"a": "integer", "b": "text", "id": "bigint"}).insert(id=1, a=1, b="x"))
        assert list(target.columns()) == ["a", "id", "_unmapped"]
        assert [aside(row) for row in target.rows()] == [{"b": "x"}]

    def test_a_column_becomes_text_where_types_are_unrelated_if_that_is_asked_for(
        self, target: Target, tmp_path: Path
    ) -> None:
        replica = Replica(target, tmp_path / "stage", on_type_conflict="widen")
        replica.load(Source({"id": "bigint", "a": "integer"}).insert(id=1, a=7))
        replica.load(Source({"id": "bigint", "a": "date"}).insert(id=2, a="2026-01-02"))
        assert [tuple(row.values()) for row in target.rows()] == [(1, "7"), (2, "2026-01-02")]

    def test_it_does_not_matter_which_task_staged_what(self, replica: Replica) -> None:
        records = [USERS.insert(id=1, name="a"), USERS.update(id=1, name="b"), USERS.delete(id=1), USERS.insert(id=1)]
        parts = []
        for offset, record in reversed(list(enumerate(records))):
            replica.offset = offset
            parts += replica.stage([record])[0]
        replica.destination.write(batch(), parts)
        assert [(row["id"], row["name"]) for row in replica.target.rows()] == [(1, None)]

    def test_the_key_of_the_config_goes_before_the_source_s(self, target: Target, tmp_path: Path) -> None:
        """A step has given the key another name."""
        replica = Replica(target, tmp_path / "stage", primary_key=["user_id"])
        replica.load(USERS.insert(user_id=1, note="x"), USERS.insert(user_id=2, note="y"))
        replica.load(USERS.update({"id": 1}, user_id=3, name="moved"), USERS.delete(user_id=2))
        assert [(row["user_id"], row["name"], row["note"]) for row in target.rows()] == [(3, "moved", "x")]

    def test_a_key_of_the_config_that_is_not_the_source_s_waits_until_it_is(
        self, target: Target, tmp_path: Path
    ) -> None:
        """An update that changes it would leave the old row."""
        replica = Replica(target, tmp_path / "stage", primary_key=["name"])
        parts, _ = replica.stage([USERS.insert(id=1, name="a")])
        (table,) = replica.destination.write(batch(0), parts).tables
        assert "PEN-DST-098" in str(table.unavailable)
        assert target.columns() == {}
        nameless = Source({"id": "bigint", "name": "text"}, key=(), namespace="public.people")
        replica.load(nameless.insert(id=1, name="a"), nameless.update({"id": 1, "name": "a"}, id=2, name="b"))
        assert [tuple(row.values()) for row in target.rows("people")] == [(2, "b")]

    def test_a_key_may_have_columns_that_a_step_has_added(self, target: Target, tmp_path: Path) -> None:
        replica = Replica(target, tmp_path / "stage", table="users", primary_key=["shard", "id"])
        replica.load(USERS.insert(shard=1, id=1, name="a"), USERS.insert(shard=2, id=1, name="b"))
        replica.load(USERS.update(shard=2, id=1, name="c"), USERS.delete(shard=1, id=1))
        assert [(row["shard"], row["id"], row["name"]) for row in target.rows()] == [(2, 1, "c")]

    def test_new_columns_are_added_and_dropped_ones_stay(self, replica: Replica) -> None:
        replica.load(USERS.insert(id=1, name="a", price=1, note="x"))
        later = Source({"id": "bigint", "price": "numeric(12,2)", "note": "text", "age": "integer"})
        replica.load(later.insert(id=2, price=2, note="y", age=30), later.update(id=1, price=3, note="z", age=None))
        assert list(replica.target.columns()) == ["id", "name", "price", "note", "age"]
        assert [(row["id"], row["name"], row["age"]) for row in replica.target.rows()] == [
            (1, "a", None),
            (2, None, 30),
        ]

    def test_a_column_that_a_step_left_out_is_never_made(self, replica: Replica) -> None:
        replica.load(USERS.insert(id=1, name="a"))
        assert list(replica.target.columns()) == ["id", "name"]

    @pytest.mark.parametrize(
        ("before", "after", "value"),
        [("integer", "bigint", 2**40), ("numeric(4,2)", "numeric(12,2)", 123456.5), ("integer", "text", "word")],
    )
    def test_a_column_gets_the_wider_type_that_the_source_has_now(
        self, replica: Replica, before: str, after: str, value: Any
    ) -> None:
        replica.load(Source({"id": "bigint", "a": before}).insert(id=1, a=7))
        replica.load(Source({"id": "bigint", "a": after}).insert(id=2, a=value))
        first, second = (row["a"] for row in replica.target.rows())
        assert str(first).removesuffix(".00") == "7"
        assert second == value

    def test_a_value_of_an_unrelated_type_is_kept_aside_until_one_fits(self, replica: Replica) -> None:
        replica.load(Source({"id": "bigint", "a": "integer", "b": "text"}).insert(id=1, a=7, b="b"))
        dates = Source({"id": "bigint", "a": "date", "b": "text"})
        replica.load(dates.update(id=1, a="2026-01-02", b="b"), dates.insert(id=2, a="2026-01-03", b=None))
        assert [(row["a"], aside(row)) for row in replica.target.rows()] == [
            (None, {"a": "2026-01-02"}), (None, {"a": "2026-01-03"})
        ]  # fmt: skip
        replica.load(dates.update(id=1, b="c"), Source({"id": "bigint", "a": "integer"}).update(id=2, a=8))
        assert [(row["a"], row["b"], aside(row)) for row in replica.target.rows()] == [
            (None, "c", {"a": "2026-01-02"}), (8, None, None)
        ]  # fmt: skip

    def test_a_number_that_no_column_holds_keeps_every_digit_through_updates(self, replica: Replica) -> None:
        source = Source({"id": "bigint", "n": "integer", "a": "date"})
        replica.load(source.insert(id=1, n=1, a="2026-01-02"))
        digits = "12345678901234567890123456789.12345678901234567890"
        wide = Source({"id": "bigint", "n": "integer", "a": "numeric(60,20)"})

        def row(n: int) -> bytes:
            return b'{"id":1,"n":%d,"a":%b}' % (n, digits.encode())

        replica.load(replace(wide.update(id=1, n=2, a=0), data=row(2)))
        for n in (3, 4):
            replica.load(replace(wide.update(id=1, n=n, a=0), data=row(n)))
            replica.load(wide.update(id=1, n=n + 10))
        replica.target.run("CREATE VIEW kept AS SELECT n, a, CAST(_unmapped AS VARCHAR) AS aside FROM users")
        (found,) = replica.target.rows("kept")
        assert (found["n"], found["a"], found["aside"].replace(" ", "")) == (14, None, f'{{"a":{digits}}}')

    def test_a_value_of_an_unrelated_type_can_fail_its_record_alone(self, target: Target, tmp_path: Path) -> None:
        replica = Replica(target, tmp_path / "stage", on_type_conflict="fail")
        replica.load(Source({"id": "bigint", "a": "integer"}).insert(id=1, a=7))
        dates = Source({"id": "bigint", "a": "date"})
        receipt = replica.load(dates.update(id=1, a="2026-01-02"), dates.insert(id=2, a=None))
        assert [(offset, code) for offset, code, _ in failures(receipt)] == [(1, "type_conflict")]
        assert [tuple(row.values()) for row in target.rows()] == [(1, 7), (2, None)]

    def test_columns_that_differ_only_in_spelling_stay_apart(self, replica: Replica) -> None:
        odd = Source({"id": "bigint", "Name": "text", "name": "text"})
        replica.load(odd.insert(id=1, Name="big", name="small"))
        (row,) = replica.target.rows()
        assert row["name"] == "small"
        assert [value for name, value in row.items() if name.startswith("name_")] == ["big"]

    @pytest.mark.parametrize("together", [True, False])
    def test_a_column_keeps_its_name_when_one_comes_that_is_spelled_like_it(
        self, replica: Replica, together: bool
    ) -> None:
        before = Source({"id": "bigint", "Name": "text"})
        now = Source({"id": "bigint", "Name": "text", "name": "text"})
        first = [before.insert(id=1, Name="a"), before.insert(id=2, Name="b")]
        then = [now.update(id=1, Name="a", name="small"), now.insert(id=3, Name="c", name=None)]
        if together:
            replica.load(*first, *then)
        else:
            replica.load(*first)
            replica.load(*then)
        replica.load(now.update(id=2, name="late"))
        big, small = self._spelled_alike(replica, sign="a")
        assert [(row["id"], row[big], row[small]) for row in replica.target.rows()] == [
            (1, "a", "small"), (2, "b", "late"), (3, "c", None)
        ]  # fmt: skip
        assert together or big == "name"

    @staticmethod
    def _spelled_alike(replica: Replica, sign: str) -> tuple[str, str]:
        """The column that has this value somewhere, and the other one."""
        columns = [name for name in replica.target.columns() if name.startswith("name")]
        first, second = sorted(columns, key=lambda name: all(row[name] != sign for row in replica.target.rows()))
        return first, second

    def test_what_a_dropped_column_had_is_not_taken_for_values_of_another(self, replica: Replica) -> None:
        replica.load(Source({"id": "bigint", "name": "text"}).insert(id=1, name="old"))
        later = Source({"id": "bigint", "NAME": "text"})
        replica.load(later.insert(id=2, NAME="new"))
        rows = replica.target.rows()
        (other,) = (name for name in replica.target.columns() if name.startswith("name_"))
        assert [(row["id"], row["name"], row[other]) for row in rows] == [(1, "old", None), (2, None, "new")]

    def test_a_column_that_its_owner_made_takes_what_is_spelled_like_it(self, replica: Replica) -> None:
        replica.target.run("CREATE TABLE users (id BIGINT PRIMARY KEY, first_name TEXT)")
        replica.load(Source({"ID": "bigint", "First Name": "text"}, key=["ID"]).insert(**{"ID": 1, "First Name": "x"}))
        assert replica.target.rows() == [{"id": 1, "first_name": "x"}]

    def test_names_without_a_letter_that_a_database_takes_stay_what_they_are(self, replica: Replica) -> None:
        before = Source({"ключ": "bigint"}, key=["ключ"])
        replica.load(before.insert(ключ=1), before.insert(ключ=2))
        now = Source({"ключ": "bigint", "дата": "text"}, key=["ключ"])
        replica.load(now.update(ключ=1, дата="x"), now.delete(ключ=2), now.insert(ключ=3, дата="y"))
        key, date = replica.target.columns()
        assert [(row[key], row[date]) for row in replica.target.rows()] == [(1, "x"), (3, "y")]

    def test_a_key_that_rows_do_not_have_waits_until_the_table_is_empty(self, replica: Replica) -> None:
        replica.load(Source({"id": "bigint", "v": "text"}).insert(id=1, v="a"))
        renamed = Source({"ident": "bigint", "v": "text"}, key=["ident"])
        parts, _ = replica.stage([renamed.update(ident=1, v="b")])
        (receipt,) = replica.destination.write(batch(replica.number), parts).tables
        assert receipt.unavailable is not None
        assert (receipt.unavailable.code, "ident" in receipt.unavailable.what) == ("PEN-DST-091", True)
        assert [row["v"] for row in replica.target.rows()] == ["a"]
        replica.load(renamed.truncate(), renamed.insert(ident=1, v="b"), renamed.update(ident=1, v="c"))
        assert [(row["ident"], row["v"]) for row in replica.target.rows()] == [(1, "c")]
        replica.load(renamed.delete(ident=1), renamed.insert(ident=2, v="d"))
        assert [(row["ident"], row["v"]) for row in replica.target.rows()] == [(2, "d")]

    def test_a_source_that_declares_nothing_gets_columns_of_its_values(self, replica: Replica) -> None:
        bare = Source({}, key=["id"])
        replica.load(bare.insert(id=1, ok=True, doc={"a": [1, None]}, none=None))
        replica.load(bare.insert(id=2, ok=None, doc=[1], none="now"))
        assert replica.target.columns()["id"] == self.bigint
        rows = replica.target.rows()
        assert [json.loads(row["doc"]) if isinstance(row["doc"], str) else row["doc"] for row in rows] == [
            {"a": [1, None]}, [1]
        ]  # fmt: skip
        assert [(row["ok"], row["none"]) for row in rows] == [(True, None), (None, "now")]

    @pytest.mark.parametrize(
        ("text", "kept"),
        [
            (b'["\\ud800"]', "ud800"),
            (b'"\\u0000"', "u0000"),
            (b'{"a":1e99999}', "1e99999"),
            (b'"plain"', "plain"),
            (b"[1,2]", "[1"),
        ],
    )
    def test_json_that_the_engine_cannot_read_is_kept_all_the_same(
        self, replica: Replica, text: bytes, kept: str
    ) -> None:
        source = Source({"id": "bigint", "doc": "jsonb"})
        replica.load(replace(source.insert(id=1), data=b'{"id":1,"doc":%b}' % text))
        (row,) = replica.target.rows()
        assert kept in (row["doc"] if isinstance(row["doc"], str) else json.dumps(row["doc"]))

    def test_a_step_s_cast_decides_over_the_source_s_type(self, target: Target, tmp_path: Path) -> None:
        replica = Replica(target, tmp_path / "stage", casts={"/price": "bigint"})
        replica.load(USERS.insert(id=1, price=7))
        assert target.columns()["price"] == self.bigint

    # Records that fail

    def test_a_change_without_its_key_fails_alone(self, replica: Replica) -> None:
        receipt = replica.load(
            USERS.insert(id=1), USERS.insert(name="x"), USERS.insert(id=None), USERS.delete(name="x")
        )
        assert [(offset, code) for offset, code, _ in failures(receipt)] == [
            (1, "no_key"),
            (2, "no_key"),
            (3, "no_key"),
        ]
        assert [row["id"] for row in replica.target.rows()] == [1]

    def test_what_is_no_json_object_fails_when_it_is_staged(self, replica: Replica) -> None:
        records = [
            USERS.insert(id=1), Record(b"[1]", "public.users"), Record(None, "public.users"),
            Record(b'{"id":1}', "public.users", headers={"columns": "[]"}),
            Record(b'{"id":1}', "public.users", Op.UPDATE, headers={"key": '["id"]', "old_key": "{"}),
        ]  # fmt: skip
        _, (outcome,) = replica.stage(records)
        assert outcome.failures.column("offset").to_pylist() == [1, 2, 3, 4]
        assert outcome.kept.column("offset").to_pylist() == [0]

    def test_a_change_that_the_database_refuses_fails_alone(self, replica: Replica) -> None:
        replica.load(USERS.insert(id=0, name="fine"))
        replica.target.run("CREATE TABLE checked (id bigint, name text CHECK (name <> 'bad'), price bigint NOT NULL)")
        checked = Source({"id": "bigint", "name": "text", "price": "bigint"}, namespace="public.checked")
        records = [checked.insert(id=n, name=f"n{n}", price=n) for n in range(20)]
        records += [
            checked.update(id=3, name="better"),
            checked.update(id=3, name="bad"),
            checked.update(id=3, price=9),
        ]
        records += [checked.update(id=4, name="bad"), checked.delete(id=4), checked.insert(id=5, name=None, price=None)]
        replica.target.run(self.with_key("checked"))
        receipt = replica.load(*records)
        assert [(offset, code) for offset, code, _ in failures(receipt)] == [
            (22, "refused"), (24, "refused"), (26, "refused")
        ]  # fmt: skip
        assert "checked" in failures(receipt)[0][2]
        rows = {row["id"]: (row["name"], row["price"]) for row in replica.target.rows("checked")}
        assert (rows[3], rows[5], 4 in rows, len(rows)) == (("better", 9), ("n5", 5), False, 19)

    def with_key(self, table: str) -> str:
        """What a table of the owner's own needs to be mirrored by the column ``id``."""
        return f"ALTER TABLE {table} ADD PRIMARY KEY (id)"

    # Exactly once

    @pytest.mark.parametrize("point", ["destination.writing", "destination.committed"])
    def test_a_crash_and_another_try_change_nothing_twice(self, point: str, target: Target, tmp_path: Path) -> None:
        replica = Replica(target, tmp_path / "stage")
        log = Source({"a": "integer"}, key=(), namespace="public.log")
        replica.load(USERS.insert(id=1, note="kept"), USERS.insert(id=2), *[log.insert(a=1)] * 3)
        parts, _ = replica.stage(
            [USERS.update({"id": 1}, id=3, name="moved"), USERS.delete(id=2), log.delete(a=1), log.insert(a=2)]
        )
        with crash_at(point):
            replica.destination.write(batch(1), parts)
        again = replica.destination.write(batch(1), parts)
        assert delivered_rows(again) == 4
        assert [(row["id"], row["name"], row["note"]) for row in target.rows()] == [(3, "moved", "kept")]
        assert sorted(row["a"] for row in target.rows("log")) == [1, 1, 2]
        assert replica.destination.write(batch(1), parts).repeated

    @pytest.mark.parametrize(("point", "there"), [("destination.writing", False), ("destination.committed", True)])
    def test_after_kill_9_nothing_is_doubled_and_no_deleted_row_comes_back(
        self, point: str, there: bool, target: Target, tmp_path: Path
    ) -> None:
        replica = Replica(target, tmp_path / "stage")
        replica.load(USERS.insert(id=1, note="kept"), USERS.insert(id=2), USERS.insert(id=3))
        parts, _ = replica.stage([USERS.update({"id": 1}, id=4), USERS.delete(id=2), USERS.insert(id=5)])
        write_and_be_killed(target, parts, point)
        expected = [(3, None), (4, "kept"), (5, None)]
        assert ([(row["id"], row["note"]) for row in target.rows()] == expected) is there
        receipt = replica.destination.write(batch(1), parts)
        assert receipt.repeated is there
        assert delivered_rows(receipt) == 3
        assert [(row["id"], row["note"]) for row in target.rows()] == expected

    def test_after_kill_9_a_table_that_was_emptied_for_its_new_key_is_filled_all_the_same(
        self, target: Target, tmp_path: Path
    ) -> None:
        replica = Replica(target, tmp_path / "stage")
        replica.load(USERS.insert(id=1), USERS.insert(id=2))
        renamed = Source({"ident": "bigint", "name": "text"}, key=["ident"])
        parts, _ = replica.stage([renamed.truncate(), renamed.insert(ident=1, name="a")])
        write_and_be_killed(target, parts, "destination.writing")
        assert target.rows() == []
        assert delivered_rows(replica.destination.write(batch(1), parts)) == 2
        assert [(row["ident"], row["name"]) for row in target.rows()] == [(1, "a")]

    def test_a_batch_that_comes_again_brings_no_deleted_row_back(self, replica: Replica) -> None:
        replica.load(USERS.insert(id=1))
        inserted, _ = replica.stage([USERS.insert(id=2), USERS.update(id=1, name="old")])
        replica.destination.write(batch(1), inserted)
        replica.number = 2
        replica.load(USERS.delete(id=2), USERS.update(id=1, name="new"))
        assert replica.destination.write(batch(1), inserted).repeated
        assert [(row["id"], row["name"]) for row in replica.target.rows()] == [(1, "new")]

    def test_failures_are_remembered_with_the_batch(self, replica: Replica) -> None:
        parts, _ = replica.stage([USERS.insert(id=1), USERS.insert(name="no key")])
        first = replica.destination.write(batch(), parts)
        again = replica.destination.write(batch(), parts)
        assert again.repeated
        assert failures(again) == failures(first)
        assert len(failures(first)) == 1

    # Planning

    def test_the_plan_shows_the_table_that_would_be_made(self, replica: Replica) -> None:
        parts, _ = replica.stage([USERS.insert(id=1, name="a")])
        made, comment = replica.destination.plan(parts)
        assert "users" in made
        assert "Mirror of public.users" in comment
        assert replica.target.columns() == {}
        replica.load(USERS.insert(id=1, name="a"))
        assert list(replica.destination.plan(parts)) == []


def aside(row: Row) -> Any:
    kept = row.get("_unmapped")
    return json.loads(kept) if isinstance(kept, str) else kept
