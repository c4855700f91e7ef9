"""The failed store: every record that a route could not deliver, with its original bytes and the reason.

One file per route, ``failed/failed.dst=<route>.log``, one JSON object per line. The ledger says how much of a file
counts, and moves that in the same transaction as the batch: what a crash left after it is cut off before the next
append, so an entry is there exactly once.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson

from penstock.durable import sync_directory
from penstock.engine.failed.failed_items import FailedItem
from penstock.engine.ledger import Extent
from penstock.errors import PenstockError
from penstock.record import Mode, Op, Record
from penstock.redaction import redacted


@dataclass(frozen=True)
class FailedEntry:
    """``id`` counts up per route. ``record`` is as it was in the log, ``item`` what of it has failed: 0 for all of
    it."""

    id: int
    route: str
    batch: int
    failed_at: datetime
    step: str
    code: str
    error: str
    event_id: str | None
    item: int
    record: Record

    def facts(self) -> dict[str, str | int | None]:
        """All but the record, as JSON has it."""
        return {
            "id": self.id,
            "route": self.route,
            "batch": self.batch,
            "failed_at": self.failed_at.isoformat(),
            "step": self.step,
            "code": self.code,
            "error": self.error,
            "event_id": self.event_id,
            "item": self.item,
        }


class FailedStore:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, route: str) -> Path:
        return self._directory / f"failed.dst={route}.log"

    def append(self, route: str, batch: int, extent: Extent, failed: Iterable[FailedItem]) -> Extent:
        """Append what failed after what ``extent`` covers, durably; the new extent. Of items that follow each other and
        share a record only the first has it: a large record may have very many.

        Repeating the call with the same extent leaves the same file.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self.path(route)
        new = not path.exists()
        now = datetime.now(UTC)
        entries = extent.entries
        self._check(path, extent)
        with path.open("r+b" if not new else "w+b") as file:
            file.truncate(extent.bytes)
            file.seek(extent.bytes)
            # One line per failed item: failures are rare, and each one is for a person to read.
            for record, items in groupby(failed, key=lambda each: each.record):
                event_id, first = _event_id(record.data), entries
                for each in items:
                    reason = each.step, each.code, redacted(each.message)
                    entry = FailedEntry(entries, route, batch, now, *reason, event_id, each.item, record)
                    file.write(_line(entry, first))
                    entries += 1
            file.flush()
            os.fsync(file.fileno())
            end = file.tell()
        if new:
            sync_directory(self._directory)
        return Extent(entries, end)

    def copy(self, route: str, other: str, extent: Extent) -> None:
        """Copy a route's entries that count to another name, durably. They still name the route."""
        source = self.path(route)
        self._check(source, extent)
        if not extent.bytes:
            return
        with source.open("rb") as file, self.path(other).open("wb") as copy:
            copy.write(file.read(extent.bytes))
            copy.flush()
            os.fsync(copy.fileno())
        sync_directory(self._directory)

    def set_aside(self, route: str, extent: Extent) -> Path | None:
        """Keep what another ledger counted after the extent in a file of its own, durably: here it will be overwritten.
        Returns that file, if there is any."""
        path = self.path(route)
        if not path.exists() or path.stat().st_size <= extent.bytes:
            return None
        aside = path.with_name(f"{path.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
        if not extent.bytes:
            path.rename(aside)
        else:
            with path.open("rb") as file, aside.open("wb") as copy:
                file.seek(extent.bytes)
                shutil.copyfileobj(file, copy)
                copy.flush()
                os.fsync(copy.fileno())
        sync_directory(self._directory)
        return aside

    def remove(self, route: str) -> None:
        self.path(route).unlink(missing_ok=True)

    def read(self, route: str, extent: Extent, after: Extent | None = None) -> Iterator[FailedEntry]:
        """The entries of committed batches, oldest first; with ``after``, only those after an earlier extent."""
        path = self.path(route)
        self._check(path, extent)
        if not extent.bytes:
            return
        start = after.bytes if after is not None else 0
        left = extent.bytes - start
        with path.open("rb") as file:
            file.seek(start)
            record: Record | None = None
            for line in file:
                left -= len(line)
                if left < 0:
                    return
                fields = json.loads(line)
                if record is None or "record_of" not in fields:
                    record = _record(fields)
                yield _entry(fields, record)

    def _check(self, path: Path, extent: Extent) -> None:
        """Refuse a file that lost entries which the ledger counts."""
        found = path.stat().st_size if path.exists() else 0
        if found < extent.bytes:
            raise PenstockError(
                "PEN-FLD-001",
                f"{path} has {found} bytes, and the ledger counts {extent.bytes} of failed records in it.",
                "Put the file back as it was: it holds records that exist nowhere else.",
            )


def _line(entry: FailedEntry, record_of: int) -> bytes:
    """``record_of``: the entry that has the record, this one or one before it."""
    record = entry.record.facts("original") if record_of == entry.id else {"record_of": record_of}
    return json.dumps({**entry.facts(), **record}, ensure_ascii=False).encode() + b"\n"


def _record(fields: dict[str, Any]) -> Record:
    original, encoded = fields.get("original"), fields.get("original_base64")
    data = base64.b64decode(encoded) if encoded is not None else None
    return Record(
        data=data if original is None else original.encode(),
        namespace=fields["namespace"],
        op=Op(fields["op"]),
        mode=Mode(fields["mode"]),
        key=fields["key"],
        headers=fields["headers"],
        timestamp=datetime.fromisoformat(fields["timestamp"]),
        partition=fields["partition"],
        offset=fields["offset"],
    )


def _entry(fields: dict[str, Any], record: Record) -> FailedEntry:
    facts = {name: fields[name] for name in ("id", "route", "batch", "step", "code", "error", "event_id")}
    # An older release kept whole records only.
    item = int(fields.get("item", 0))
    return FailedEntry(**facts, failed_at=datetime.fromisoformat(fields["failed_at"]), item=item, record=record)


def _event_id(data: bytes | None) -> str | None:
    try:
        found = orjson.loads(data or b"")["eventn_ctx"]["event_id"]
    except (orjson.JSONDecodeError, KeyError, TypeError, IndexError):
        return None
    return str(found)
