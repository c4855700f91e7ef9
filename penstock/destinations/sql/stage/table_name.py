"""Which table a record goes to: a fixed name, or a template over its data (``{{ event_type }}``).

``template.py`` says what a template may contain: nothing random, so a record always gets the same table. Only the
fields that it names are looked up, and it is rendered once per distinct set of their values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from jinja2 import nodes

from penstock.destinations.sql.stage.allowed_tables import RESERVED_PREFIX, AllowedTables
from penstock.destinations.sql.stage.template import EventTemplate, field_path
from penstock.flatten.column_naming import column_name
from penstock.json.find import Found, find
from penstock.json.paths import Path

ANY_TABLE = AllowedTables()
NO_NAME, NOT_ALLOWED = "table_name", "table_not_allowed"
"""Codes of failures: the template gives no valid table name; the config does not list the table."""
_TIME_FIELD = "_timestamp"
_MAX_REMEMBERED = 10_000
_MAX_KEY_BYTES = 1024
"""Larger values are not cached: senders choose them, and there may be many."""
_MAX_VALUE_BYTES = 2**20
"""Of the fields that a template looks at, in one event."""
_MAX_PROBLEM = 300
_decode = json.JSONDecoder().decode


@dataclass(frozen=True)
class Choice:
    """Rows that share a table. With neither a table nor a problem the template came out empty: the rows are skipped."""

    rows: npt.NDArray[np.int64] | None
    """Their places in the batch, ascending; ``None`` means all."""
    table: str = ""
    problem: str = ""
    code: str = NO_NAME
    """Of the problem, if there is one."""


class TableChooser:
    """Chooses tables by a template. Raises ``ValueError`` if it is not a template."""

    def __init__(self, template: str, max_name: int, allowed: AllowedTables = ANY_TABLE) -> None:
        self._template = EventTemplate(template)
        self._paths = _paths(self._template)
        self._max_name = max_name
        self._allowed = allowed
        self._remembered: dict[tuple[bytes | None, ...], tuple[str, str, str]] = {}
        self._fixed: Choice | None = None
        if not self._paths:
            self._fixed = Choice(None, *self._render(()))
            if self._fixed.problem or not self._fixed.table:
                raise ValueError(f"'{template}' gives no table name: {self._fixed.problem or 'it is empty'}")

    @property
    def fixed(self) -> bool:
        """Whether every record goes to the same table."""
        return self._fixed is not None

    def choose(self, data: pa.Array) -> Sequence[Choice]:
        """The tables of the documents of an array, each row in one choice. Rows that are not JSON objects get a table
        too: flattening finds what is wrong with them."""
        if self._fixed is not None:
            return [self._fixed]
        found = find(data, self._paths)
        fields = [_values(found, place).dictionary_encode() for place in range(len(self._paths))]
        codes = np.zeros(len(data), np.int64)
        for field in fields:
            indices = field.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            # Renumbered at each step, so that the product cannot overflow however many fields there are.
            _, codes = np.unique(codes * (len(field.dictionary) + 1) + indices, return_inverse=True)
        _, first_rows, group_of_row = np.unique(codes, return_index=True, return_inverse=True)
        first_values = [field.take(pa.array(first_rows)).to_pylist() for field in fields]
        results = [self._result(values) for values in zip(*first_values, strict=True)]
        numbers: dict[tuple[str, str, str], int] = {}
        number_of_group = np.array([numbers.setdefault(result, len(numbers)) for result in results], np.int64)
        number_of_row = number_of_group[group_of_row] if len(data) else codes
        unreadable = numbers.setdefault(("unreadable", "", NO_NAME), len(numbers))
        number_of_row[~found.valid] = unreadable
        order = np.argsort(number_of_row, kind="stable")
        cuts = np.searchsorted(number_of_row[order], np.arange(len(numbers) + 1))
        return [
            Choice(order[cuts[number] : cuts[number + 1]], table, problem, code)
            for (table, problem, code), number in numbers.items()
            if cuts[number] < cuts[number + 1]
        ]

    def _result(self, values: tuple[bytes | None, ...]) -> tuple[str, str, str]:
        known = self._remembered.get(values)
        if known is None:
            known = self._render(values)
            if _size(values) <= _MAX_KEY_BYTES:
                if len(self._remembered) >= _MAX_REMEMBERED:
                    self._remembered.clear()
                self._remembered[values] = known
        return known

    def _render(self, values: tuple[bytes | None, ...]) -> tuple[str, str, str]:
        """The table or, if there is none because of an error, what is wrong and its code."""
        if _size(values) > _MAX_VALUE_BYTES:
            problem = f"the table template failed: the fields that it looks at have over {_MAX_VALUE_BYTES} bytes"
            return "", problem, NO_NAME
        try:
            text = self._template.render(_context(self._paths, values)).strip()
        except Exception as error:  # whatever a template raises is caused by this record's values
            return "", f"the table template failed: {str(error)[:_MAX_PROBLEM]}", NO_NAME
        if not text:
            return "", "", NO_NAME
        table = column_name([text], self._max_name)
        if table.startswith(RESERVED_PREFIX):
            return "", f"'{table}' is a table of Penstock's own", NO_NAME
        if not self._allowed.allows(table):
            return "", f"`tables` does not allow '{table}'", NOT_ALLOWED
        return table, "", NO_NAME


def _paths(template: EventTemplate) -> list[Path]:
    """The fields a template needs: exact ones if it only prints fields, else whole top-level ones."""
    tree = template.tree
    printed = [node for output in tree.find_all(nodes.Output) for node in output.nodes]
    paths = [field_path(node) for node in printed if not isinstance(node, nodes.TemplateData)]
    exact = [path for path in paths if path is not None]
    if len(exact) == len(paths) and all(isinstance(part, nodes.Output) for part in tree.body):
        # A field and a field inside it cannot both be put into one object; the outer one has both.
        return [path for path in dict.fromkeys(exact) if not any(path[:n] in exact for n in range(1, len(path)))]
    return [(name,) for name in sorted(template.fields)]


def _size(values: Sequence[bytes | None]) -> int:
    return sum(len(value) for value in values if value is not None)


def _values(found: Found, place: int) -> pa.Array:
    """The bytes of one path's value in every document, null where there is none."""
    starts, ends = found.value_start[:, place], found.value_end[:, place]
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(ends - starts, out=offsets[1:])
    positions = np.arange(offsets[-1], dtype=np.int64) + np.repeat(starts - offsets[:-1], ends - starts)
    present = pa.array(starts >= 0)
    gathered = pa.Array.from_buffers(
        pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(found.buffer[positions])]
    )
    return pa.compute.if_else(present, gathered, pa.scalar(None, pa.binary()))


def _context(paths: Sequence[Path], values: Sequence[bytes | None]) -> Mapping[str, object]:
    """The event as far as the template looks at it."""
    context: dict[str, Any] = {}
    for path, value in zip(paths, values, strict=True):
        if value is None:
            continue
        place = context
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = _decode(value.decode("utf-8", "surrogatepass"))
    time = context.get(_TIME_FIELD)
    if isinstance(time, str):
        with suppress(ValueError):
            context[_TIME_FIELD] = datetime.fromisoformat(time)
    return context
