"""Entries for log tests: small, numbered, and checkable on their own."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from penstock.log.local_log import LocalLog
from penstock.record import Record, entries, records

START = datetime(2030, 1, 1, tzinfo=UTC)


def numbered(numbers: Iterable[int], size: int = 0) -> pa.RecordBatch:
    """Entries whose data is their number; the n-th is n seconds after ``START``."""
    return entries(
        Record(
            data=b"%d" % n + b"." * size,
            namespace=f"shop.{n % 3}",
            key=None if n % 2 else f"k{n}",
            headers={"token": "site", "n": str(n)} if n % 5 else {},
            timestamp=START + timedelta(seconds=n),
        )
        for n in numbers
    )


def repeating(numbers: Iterable[int], size: int = 0) -> pa.RecordBatch:
    """Entries like ``numbered``, but with few different keys: see ``key_of``."""
    return entries(
        Record(
            data=b"%d" % n + b"." * size,
            namespace=key_of(n)[0],
            key=key_of(n)[1],
            timestamp=START + timedelta(seconds=n),
        )
        for n in numbers
    )


def key_of(n: int) -> tuple[str, str | None]:
    """The key by which compaction knows the n-th of ``repeating``: its namespace, and its own key if it has one."""
    return f"shop.{n % 3}", None if n % 4 == 0 else "" if n % 4 == 1 else f"k{n % 10}"


def number(data: bytes) -> int:
    return int(data.rstrip(b"."))


def rows(log: LocalLog, partition: int = 0, start: int = 0, end: int | None = None) -> list[Record]:
    return [record for batch in log.read(partition, start, end) for record in records(batch)]


def numbers(log: LocalLog, partition: int = 0, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """(offset, number) of everything in a range."""
    return [
        (offset, number(data))
        for batch in log.read(partition, start, end)
        for offset, data in zip(batch.column("offset").to_pylist(), batch.column("data").to_pylist(), strict=True)
    ]


def sealed(n: int) -> bytes:
    """A body that tells whether it arrived whole."""
    body = b"%d:" % n + b"x" * (n * 37 % 400)
    return b"%08x" % zlib.crc32(body) + body


def seal_holds(data: bytes) -> bool:
    return int(data[:8], 16) == zlib.crc32(data[8:])


def fetched(log: LocalLog, pointers: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The offsets that are there, and those that are missing."""
    fetch = log.fetch(pointers)
    there = [offset for batch in fetch for offset in batch.column("offset").to_pylist()]
    return there, fetch.missing.column("offset").to_pylist()


def segments(log: LocalLog, partition: int = 0) -> list[Path]:
    return sorted((log.directory / str(partition)).glob("*.seg"))
