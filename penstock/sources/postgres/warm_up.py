"""Compiles what makes records of copied rows and of changes, on a row as the server sends it."""

from __future__ import annotations

import struct

import numpy as np

from penstock.sources.postgres.catalog.table_layout import Column, Layout, pack
from penstock.sources.postgres.catalog.value_kinds import Kind
from penstock.sources.postgres.copy.copy_blocks import gather_rows
from penstock.sources.postgres.copy.copy_text import cut
from penstock.sources.postgres.progress import SourceProgress
from penstock.sources.postgres.rows.row_fields import Fields
from penstock.sources.postgres.rows.row_json import Rows, data_of, keys_of
from penstock.sources.postgres.rows.scratch import Scratch
from penstock.sources.postgres.stream.follower import Decoder
from penstock.sources.postgres.stream.relations import Relation

_LAYOUT = Layout(7, "public.t", tuple(Column(kind.name, "?", kind) for kind in Kind), (Kind.NUMBER.name,))
_VALUES = (b"x", b"1", b"t", b"[1]", b"2026-01-02 03:04:05", b"2026-01-02 03:04:05+00")


def warm_up() -> None:
    _read_copied_rows()
    _read_changes()


def _read_copied_rows() -> None:
    row = b"\t".join(_VALUES) + b"\n"
    message = np.frombuffer(bytearray(b"d" + struct.pack(">I", len(row) + 4) + row), np.uint8)
    text = np.zeros(len(row) + 8, np.uint8)
    gather_rows(message, 0, len(message), len(text), text, 0, 0)
    starts, ends = np.zeros(len(_VALUES), np.int32), np.zeros(len(_VALUES), np.int32)
    cut(text, len(row), len(_VALUES), starts, ends)
    text.flags.writeable = False
    rows = Rows(np.zeros(1, np.int32), np.zeros(1, np.int64))
    fields, packed, scratch = Fields(text, starts, ends), pack([_LAYOUT]), Scratch()
    data_of(rows, fields, packed, scratch)
    keys_of(rows, fields, packed, scratch)


class _OneTable:
    """The tables of a stream that knows a single one."""

    def wanted_layout(self, relation: Relation) -> Layout | None:
        return _LAYOUT

    def has_outgrown_copy(self, relation: Relation) -> bool:
        return False

    def void_table(self, namespace: str) -> None:
        pass


def _read_changes() -> None:
    columns = b"".join(struct.pack(">B", kind is Kind.NUMBER) + b"c\0" + struct.pack(">Ii", 25, -1) for kind in Kind)
    table = struct.pack(">I", _LAYOUT.oid)
    row = struct.pack(">H", len(_VALUES)) + b"".join(b"t" + struct.pack(">I", len(v)) + v for v in _VALUES)
    messages = [
        b"B" + struct.pack(">QqI", 1, 0, 1),
        b"R" + table + b"public\0t\0d" + struct.pack(">H", len(_VALUES)) + columns,
        b"I" + table + b"N" + row,
        b"U" + table + b"K" + row + b"N" + row,
        b"D" + table + b"K" + row,
        b"C" + struct.pack(">BQQq", 0, 1, 9, 0),
    ]
    decoder = Decoder(SourceProgress("slot"), _OneTable())
    for _ in decoder.decode([b"w" + bytes(24) + message for message in messages]):
        pass
