"""A relation as the server describes it in the stream, before changes that have its shape."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEAD = struct.Struct(">I")
_COLUMN = struct.Struct(">Ii")


@dataclass(frozen=True)
class RelationColumn:
    name: str
    type_oid: int
    modifier: int
    in_identity: bool


@dataclass(frozen=True)
class Relation:
    oid: int
    schema: str
    table: str
    identity: str
    """``d`` the primary key, ``i`` an index, ``f`` the whole row, ``n`` nothing."""
    columns: tuple[RelationColumn, ...]

    @property
    def namespace(self) -> str:
        return f"{self.schema}.{self.table}"


def parse_relation(message: bytes) -> Relation:
    """What a relation message says; ``message`` begins with its ``R``."""
    (oid,) = _HEAD.unpack_from(message, 1)
    schema, at = _text(message, 5)
    table, at = _text(message, at)
    identity = chr(message[at])
    count = int.from_bytes(message[at + 1 : at + 3], "big")
    at += 3
    columns = []
    for _ in range(count):
        flags = message[at]
        name, at = _text(message, at + 1)
        type_oid, modifier = _COLUMN.unpack_from(message, at)
        at += _COLUMN.size
        columns.append(RelationColumn(name, type_oid, modifier, bool(flags & 1)))
    # Built-in things are in a schema that is sent without its name.
    return Relation(oid, schema or "pg_catalog", table, identity, tuple(columns))


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1
