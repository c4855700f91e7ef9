"""The one message that flows through Penstock, and its Arrow schemas.

A source appends *entries* (``ENTRY_SCHEMA``); the log gives each one a place, and from then on it is a *record*
(``RECORD_SCHEMA`` = partition and offset, the entry, and its item). Records travel as Arrow record batches; ``Record``
is the one-at-a-time view for people and tests, never for the hot path.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Op(StrEnum):
    """What the record says happened to the thing it describes."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    COMMAND = "command"
    NOOP = "noop"


class Mode(StrEnum):
    """The phase of its source at this record: copying, following changes, or done copying."""

    COPY = "copy"
    SYNC = "sync"
    COMPLETE = "complete"


class Header(StrEnum):
    """Header names with a meaning to Penstock. Sources may add others."""

    TOKEN = "token"
    """Id of the token that the event was sent with; never the secret."""
    CONTENT_TYPE = "content_type"
    """Media type of ``data``; absent means JSON."""
    MALFORMED = "malformed"
    """The source could not read ``data``; the value says why. Every route fails such a record before its first step."""
    ENDPOINT = "endpoint"
    """Which endpoint of a source took it (``js``, ``api``, ``bulk``, ``pixel``, ``segment``)."""
    POSITION = "position"
    """Where in its source the record was (a file and line, a change position)."""
    COLUMNS = "columns"
    """For a table change: a JSON object of the table's columns, each with its type at the source."""
    KEY = "key"
    """A JSON array of the key columns; absent if the table has no key."""
    UNCHANGED = "unchanged"
    """A JSON array of the columns that an update left out: they keep their value."""
    OLD_KEY = "old_key"
    """The former key of a row whose key an update changed: a JSON object of key columns, or of the whole row if the
    table has no key."""
    REPLAY_OF = "replay_of"
    """Of a record that was put through its route again: the place of its original, ``partition:offset``."""
    REPLAY_ITEM = "replay_item"
    """The only item of it that is meant; absent if all of it is."""
    ONLY_ITEM = "only_item"
    """Of a failed record that was cut: ``data`` has only this item of what the log had."""
    SOURCE = "source"
    """Of a bundle of state: the producer whose state it is."""
    KIND = "kind"
    """Of a bundle: what kind of things it has the state of."""
    VERSION = "version"
    """Of a bundle: ``incarnation.generation``, two whole numbers."""
    DEPENDS_ON = "depends_on"
    """Of a bundle: the version of another kind that must be there before it."""
    BASE = "base"
    """Of a bundle of changes: the version of the whole state that they are changes of."""


ENTRY_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("namespace", pa.string(), nullable=False),
        pa.field("op", pa.string(), nullable=False),
        pa.field("mode", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("headers", pa.map_(pa.string(), pa.string())),
        pa.field("data", pa.binary()),
    ]
)

RECORD_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        *ENTRY_SCHEMA,
        pa.field("item", pa.int64(), nullable=False),
    ]
)
"""``item`` is 0 for the record itself; the rows that a step makes of it are numbered (``penstock/items.py``)."""


@dataclass(frozen=True, slots=True)
class Record:
    """One message. ``partition`` and ``offset`` are -1 until the log has given it a place."""

    data: bytes | None
    namespace: str = ""
    op: Op = Op.INSERT
    mode: Mode = Mode.SYNC
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))
    partition: int = -1
    offset: int = -1

    def facts(self, data: str = "data") -> dict[str, str | int | dict[str, str] | None]:
        """All of it as JSON has it: the data under this name if it is text, under ``<name>_base64`` if it is not."""
        facts: dict[str, str | int | dict[str, str] | None] = {
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp.isoformat(),
            "namespace": self.namespace,
            "op": str(self.op),
            "mode": str(self.mode),
            "key": self.key,
            "headers": dict(self.headers),
        }
        try:
            return {**facts, data: None if self.data is None else self.data.decode()}
        except UnicodeDecodeError:
            return {**facts, f"{data}_base64": base64.b64encode(self.data or b"").decode()}


def entries(records: Iterable[Record]) -> pa.RecordBatch:
    """The records as a batch that a log takes (their places, if any, are left out)."""
    rows = list(records)
    columns: list[Sequence[object]] = [
        [r.timestamp for r in rows],
        [r.namespace for r in rows],
        [str(r.op) for r in rows],
        [str(r.mode) for r in rows],
        [r.key for r in rows],
        [list(r.headers.items()) for r in rows],
        [r.data for r in rows],
    ]
    arrays = [pa.array(column, f.type) for column, f in zip(columns, ENTRY_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ENTRY_SCHEMA)


def placed(batch: pa.RecordBatch, partition: int, first_offset: int) -> pa.RecordBatch:
    """Entries as records at consecutive offsets from ``first_offset``."""
    offsets = np.arange(first_offset, first_offset + batch.num_rows, dtype=np.int64)
    return with_places(batch, partition, int64_array(offsets))


def int64_array(values: npt.NDArray[np.int64]) -> pa.Array:
    """The numbers as an Arrow array. ``pyarrow.array`` would import pandas first, which is slower than most reads."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.int64))])


def int64_values(array: pa.Array) -> npt.NDArray[np.int64]:
    """The numbers, or times, of an array without nulls, not copied. ``to_numpy`` would import pandas, as above."""
    if len(array) == 0:
        return np.empty(0, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64, len(array), array.offset * 8)


def text_scalar(text: str) -> pa.StringScalar:
    """The text as an Arrow scalar. ``pyarrow.scalar`` would import pandas first."""
    data = text.encode()
    ends = np.array([0, len(data)], np.int32)
    return pa.StringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(data))[0]


def with_places(batch: pa.RecordBatch, partition: int, offsets: pa.Array) -> pa.RecordBatch:
    """Entries as records at the given offsets."""
    numbers = pa.py_buffer(np.full(batch.num_rows, partition, np.int32))
    partitions = pa.Array.from_buffers(pa.int32(), batch.num_rows, [None, numbers])
    items = int64_array(np.zeros(batch.num_rows, np.int64))
    return pa.RecordBatch.from_arrays([partitions, offsets, *batch.columns, items], schema=RECORD_SCHEMA)


def records(batch: pa.RecordBatch) -> list[Record]:
    """The rows of a batch of records, one object each."""
    # As numbers: Arrow converts times with a zone through pandas, which is slow to import.
    micros = batch.column("timestamp").view(pa.int64()).to_pylist()
    rows = batch.drop_columns(["timestamp"]).to_pylist()
    return [
        Record(
            data=row["data"],
            namespace=row["namespace"],
            op=Op(row["op"]),
            mode=Mode(row["mode"]),
            key=row["key"],
            headers=dict(row["headers"] or ()),
            timestamp=EPOCH + timedelta(microseconds=time),
            partition=row["partition"],
            offset=row["offset"],
        )
        for row, time in zip(rows, micros, strict=True)
    ]
