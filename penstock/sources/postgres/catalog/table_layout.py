"""The layout of a table: the texts that all its records share, and the same packed for compiled code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import Bytes
from penstock.json.arrow_text import quoted
from penstock.sources.postgres.catalog.value_kinds import Kind


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    """By ``format_type()``; for a domain, its base type."""
    kind: Kind
    number: int = 0
    """The catalog's number, which a column that is made again under its name does not keep; 0: it has none now."""


@dataclass(frozen=True)
class Layout:
    """A table's columns in order, and which of them name a row."""

    oid: int
    namespace: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """The columns of the key, in the key's order; empty: the table has no key."""

    @cached_property
    def columns_header(self) -> str:
        return compact({column.name: column.type for column in self.columns})

    @cached_property
    def key_header(self) -> str | None:
        return compact(list(self.key)) if self.key else None

    @cached_property
    def labels(self) -> tuple[bytes, ...]:
        """``"name":`` per column."""
        return tuple(quoted(column.name) + b":" for column in self.columns)

    @cached_property
    def key_places(self) -> tuple[int, ...]:
        """The key's columns as indexes into ``columns``."""
        names = [column.name for column in self.columns]
        return tuple(names.index(name) for name in self.key)


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Packed(NamedTuple):
    """Layouts for compiled code. Each kind of text is one blob, with the offsets of its parts."""

    first_column: npt.NDArray[np.int32]
    """Per layout its first column's number, and one more for the end."""
    kinds: npt.NDArray[np.uint8]
    labels: Bytes
    """``"name":`` per column."""
    label_at: npt.NDArray[np.int32]
    first_key: npt.NDArray[np.int32]
    key_column: npt.NDArray[np.int32]
    """Which column of its layout each column of a key is."""
    headers: Bytes
    """Per layout: the header ``columns``, then the header ``key`` (empty if there is none)."""
    header_at: npt.NDArray[np.int32]
    positions: Bytes
    """Per layout: what the header ``position`` begins with."""
    position_at: npt.NDArray[np.int32]


def pack(layouts: Sequence[Layout], slot: str = "") -> Packed:
    """``slot``: the one that positions name."""
    labels = [label for layout in layouts for label in layout.labels]
    headers = [text.encode() for layout in layouts for text in (layout.columns_header, layout.key_header or "")]
    positions = [b'{"slot":%b,"table":%d,' % (quoted(slot), layout.oid) for layout in layouts]
    return Packed(
        _ends(len(layout.columns) for layout in layouts),
        np.array([column.kind for layout in layouts for column in layout.columns], np.uint8),
        _blob(labels),
        _ends(map(len, labels)),
        _ends(len(layout.key) for layout in layouts),
        np.array([place for layout in layouts for place in layout.key_places], np.int32),
        _blob(headers),
        _ends(map(len, headers)),
        _blob(positions),
        _ends(map(len, positions)),
    )


def _ends(lengths: Iterable[int]) -> npt.NDArray[np.int32]:
    return np.cumsum([0, *lengths], dtype=np.int32)


def _blob(texts: list[bytes]) -> Bytes:
    # A word's room after the last text: copying reads whole words.
    return np.frombuffer(b"".join(texts) + bytes(8), np.uint8)
