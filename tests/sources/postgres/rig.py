"""A database of a test's own, the source that follows it, and what a mirror would make of the log."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest

from penstock.log.local_log import LocalLog
from penstock.record import Header, Mode, Op, Record, records
from penstock.sources.contract import SourceContext
from penstock.sources.postgres.config import PostgresConfig
from penstock.sources.postgres.source import PostgresSource
from penstock.testing.source import log_records, running
from penstock.testing.waiting import HANG

logging.getLogger("penstock.postgres").setLevel(logging.INFO)


@dataclass
class Rig:
    url: str
    folder: Path
    log_options: dict[str, Any] = field(default_factory=dict)
    _mirror: Mirror = field(default_factory=lambda: Mirror())
    _mirrored_to: dict[int, int] = field(default_factory=dict)
    _differed_at: dict[int, int] | None = None

    def ask(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each in a transaction of its own; the rows of the last."""
        with psycopg.connect(self.url, autocommit=True, client_encoding="utf8") as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def options(self, **changed: Any) -> dict[str, Any]:
        return {"url": self.url, "tables": ["public.*"], "discover": "200ms", **changed}

    @property
    def context(self) -> SourceContext:
        (self.folder / "state").mkdir(parents=True, exist_ok=True)
        return SourceContext("pg", self.folder / "log", json.dumps(self.log_options), self.folder / "state")

    def source(self, **changed: Any) -> PostgresSource:
        return PostgresSource(PostgresConfig.model_validate(self.options(**changed)), self.context)

    def catch_up(self, **changed: Any) -> list[Record]:
        """Run the source until it has all that is committed now; the records that it added, but for beginnings of first
        copies."""
        before = self._ends()
        self.source(**changed).run(Event(), once=True)
        log = LocalLog(self.folder / "log")
        added = [batch for p, end in self._ends().items() for batch in log.read(p, before.get(p, 0), end)]
        return [record for batch in added for record in records(batch) if not begins_first_copy(record)]

    def child(self, once: bool = False, **changed: Any) -> AbstractContextManager[BaseProcess]:
        """The source in a process of its own."""
        return running("postgres", json.dumps(self.options(**changed)), self.context, once)

    def run_until_killed(self, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run the source until it gets to a named point, where it is killed."""
        with monkeypatch.context() as faults:
            faults.setenv("PENSTOCK_FAULTS", f"{point}=kill")
            with self.child() as process:
                process.join(HANG)
                assert process.exitcode == -9

    def records(self) -> list[Record]:
        """All records, but for beginnings of first copies."""
        return [record for record in log_records(self.folder / "log") if not begins_first_copy(record)]

    def log_end(self) -> int:
        """How many records the log has."""
        return sum(self._ends().values())

    def _ends(self) -> dict[int, int]:
        log = LocalLog(self.folder / "log")
        return {partition: log.bounds(partition).end for partition in log.partitions()}

    def completed(self) -> set[str]:
        return set(self.mirror().completed)

    def mirror(self) -> Mirror:
        """What the log says that the tables hold. Asked again and again, so only what is new is read."""
        ends, log = self._ends(), LocalLog(self.folder / "log")
        if any(end < self._mirrored_to.get(partition, 0) for partition, end in ends.items()):
            self._mirror, self._mirrored_to = Mirror(), {}
        for partition, end in ends.items():
            begin = self._mirrored_to.get(partition, 0)
            for batch in log.read(partition, begin, end) if begin < end else ():
                for record in records(batch):
                    self._mirror.apply(record)
            self._mirrored_to[partition] = end
        return self._mirror

    def rows(self, table: str) -> Counter[str]:
        """The rows of a table as the server gives them."""
        return Counter(canonical(row) for (row,) in self.ask(f"SELECT to_json(t) FROM {table} t"))

    def is_mirrored(self, *tables: str) -> bool:
        """Asked again and again: what differed does so until there is more in the log."""
        mirror = self.mirror()
        if self._differed_at == self._mirrored_to:
            return False
        same = all(mirror.rows(table) == self.rows(table) for table in tables)
        self._differed_at = None if same else dict(self._mirrored_to)
        return same


@dataclass
class Mirror:
    """Applies records one by one, as strictly as it can: what cannot be is an error."""

    keyed: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    keyless: dict[str, Counter[str]] = field(default_factory=dict)
    modes: dict[str, Mode] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    completed: set[str] = field(default_factory=set)
    """Tables that were copied to the end at some time."""
    positions: list[tuple[str, int]] = field(default_factory=list)

    def rows(self, table: str) -> Counter[str]:
        if table in self.keyless:
            return self.keyless[table]
        return Counter(canonical(row) for row in self.keyed.get(table, {}).values())

    def apply(self, record: Record) -> None:
        name, data = record.namespace, json.loads(record.data or b"null")
        self._check_order(record)
        if record.op is Op.NOOP:
            return
        if record.op is Op.COMMAND:
            assert data in ({"truncate": True}, FIRST_COPY)
            assert data != FIRST_COPY or not (name in self.keyed or name in self.keyless)
            self.keyed.pop(name, None)
            self.keyless.pop(name, None)
        elif "key" in record.headers:
            self._apply_keyed(record, self.keyed.setdefault(name, {}), data)
        else:
            self._apply_keyless(record, self.keyless.setdefault(name, Counter()), data)

    def _check_order(self, record: Record) -> None:
        name, position = record.namespace, json.loads(record.headers[Header.POSITION])
        before = self.modes.get(name)
        if record.mode is Mode.COPY and record.op is Op.NOOP:
            self.left.add(name)
            return
        assert name not in self.left or record.op is Op.COMMAND, f"{name}: goes on after changes were missed"
        self.left.discard(name)
        if record.mode is Mode.SYNC:
            assert before in (Mode.COMPLETE, Mode.SYNC, None), f"{name}: a change while it is being copied"
            place = (position["commit"].rjust(20, "0"), position["number"])
            assert not self.positions or place > self.positions[-1], f"{name}: {place} after {self.positions[-1]}"
            self.positions.append(place)
        elif record.mode is Mode.COPY and before in (Mode.COMPLETE, Mode.SYNC):
            assert record.op is Op.COMMAND, f"{name}: copied again without a word"
        self.modes[name] = record.mode
        if record.mode is Mode.COMPLETE:
            self.completed.add(name)

    def _apply_keyed(self, record: Record, table: dict[str, dict[str, Any]], data: dict[str, Any]) -> None:
        key = record.key
        assert key is not None
        if record.op is Op.INSERT:
            assert key not in table, f"{record.namespace} {key} twice"
            table[key] = data
        elif record.op is Op.DELETE:
            del table[key]
        else:
            old = table.pop(record.headers.get("old_key", key))
            kept = {name: old[name] for name in json.loads(record.headers.get("unchanged", "[]"))}
            assert not kept.keys() & data.keys()
            table[key] = {**data, **kept}

    def _apply_keyless(self, record: Record, table: Counter[str], data: dict[str, Any]) -> None:
        if record.op is not Op.INSERT:
            old = json.loads(record.headers["old_key"]) if record.op is Op.UPDATE else data
            assert table[canonical(old)] > 0
            table[canonical(old)] -= 1
            if not table[canonical(old)]:
                del table[canonical(old)]
        if record.op is not Op.DELETE:
            table[canonical(data)] += 1


FIRST_COPY = {"truncate": True, "first": True}


def begins_first_copy(record: Record) -> bool:
    return record.op is Op.COMMAND and json.loads(record.data or b"null") == FIRST_COPY


def canonical(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


def rows_of(found: list[Record]) -> list[dict[str, Any]]:
    """The rows of records that have one."""
    return [json.loads(record.data or b"null") for record in found if record.op not in (Op.NOOP, Op.COMMAND)]


def told(found: list[Record]) -> Iterator[tuple[str, str, Any]]:
    """Op, mode and row of each record."""
    for record in found:
        yield str(record.op), str(record.mode), json.loads(record.data or b"null")
