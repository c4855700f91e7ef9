"""The server's side of the wire, written out plainly: COPY text and the messages of logical replication."""

from __future__ import annotations

import struct
from collections.abc import Sequence

UNCHANGED = object()
Value = str | None | object
ESCAPES = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def copy_row(values: Sequence[str | None]) -> bytes:
    """A row as COPY writes it."""
    texts = ["\\N" if value is None else "".join(ESCAPES.get(c, c) for c in value) for value in values]
    return "\t".join(texts).encode() + b"\n"


def wrapped(payload: bytes) -> bytes:
    """A message in the envelope that the server puts around it."""
    return b"w" + bytes(24) + payload


def begin(commit: int, time: int = 0) -> bytes:
    return wrapped(b"B" + struct.pack(">QqI", commit, time, 1))


def end(commit: int) -> bytes:
    return wrapped(b"C" + struct.pack(">BQQq", 0, commit, commit + 8, 0))


def relation(oid: int, table: str, columns: Sequence[tuple[str, bool]], identity: str = "d") -> bytes:
    """Columns by name, and whether they are in the identity; all are of type text."""
    described = b"".join(
        struct.pack(">B", in_key) + name.encode() + b"\0" + struct.pack(">Ii", 25, -1) for name, in_key in columns
    )
    head = struct.pack(">I", oid) + b"public\0" + table.encode() + b"\0" + identity.encode()
    return wrapped(b"R" + head + struct.pack(">H", len(columns)) + described)


def insert(oid: int, new: Sequence[Value]) -> bytes:
    return wrapped(b"I" + struct.pack(">I", oid) + _row(b"N", new))


def update(oid: int, new: Sequence[Value], old: Sequence[Value] | None = None, kind: bytes = b"K") -> bytes:
    return wrapped(b"U" + struct.pack(">I", oid) + (_row(kind, old) if old is not None else b"") + _row(b"N", new))


def delete(oid: int, old: Sequence[Value], kind: bytes = b"K") -> bytes:
    return wrapped(b"D" + struct.pack(">I", oid) + _row(kind, old))


def truncate(*oids: int) -> bytes:
    return wrapped(b"T" + struct.pack(">IB", len(oids), 0) + b"".join(struct.pack(">I", oid) for oid in oids))


def _row(kind: bytes, values: Sequence[Value]) -> bytes:
    return kind + struct.pack(">H", len(values)) + b"".join(map(_value, values))


def _value(value: Value) -> bytes:
    if value is None:
        return b"n"
    if value is UNCHANGED:
        return b"u"
    text = str(value).encode()
    return b"t" + struct.pack(">I", len(text)) + text
