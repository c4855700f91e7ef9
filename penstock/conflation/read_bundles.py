"""From records of the log to the bundles in them, column by column, and a failure for each record that has none.

A record with one of the headers ``source``, ``kind`` and ``version`` is described by its headers, and its data is the
bundle's. Any other is an envelope: a JSON object with the members ``source``, ``kind``, ``version``, ``depends_on``,
``base`` and ``data``. A bundle's data is cut out as it is written; nothing looks into it.

What was sent with a token counts only if it is described by headers: they are set where it is checked that the token
may speak for the source. Else whoever may send an event could send the state of anybody.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.conflation.bundle_rules import TEXTS
from penstock.conflation.check_bundles import BundleTexts, fail_bad_bundles
from penstock.conflation.envelopes import read_envelopes
from penstock.conflation.kinds import Kinds
from penstock.outcome import PLACE_COLUMNS, PLACE_SCHEMA
from penstock.record import ENTRY_SCHEMA, Header, int64_array

BUNDLE_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("version", pa.string(), nullable=False),
        pa.field("depends_on", pa.string()),
        pa.field("base", pa.string()),
        *PLACE_SCHEMA,
        ENTRY_SCHEMA.field("timestamp"),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
"""The versions are texts that ``parse_version`` takes."""

_DESCRIBING = (Header.SOURCE, Header.KIND, Header.VERSION)


def read_bundles(batch: pa.RecordBatch, kinds: Kinds) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The bundles of a batch of records (``BUNDLE_SCHEMA``, in the batch's order), and the failures of its other
    records (``FAILURE_SCHEMA``). Every record is one of both."""
    value_of = _header_lookup(batch.column("headers"))
    none = np.zeros(batch.num_rows, np.bool_)
    texts, data = BundleTexts([value_of(name) for name in TEXTS], [none] * len(TEXTS)), batch.column("data")
    described = np.any([texts.is_there(name) for name in _DESCRIBING], axis=0)
    if not described.all():
        sent = ~described & value_of(Header.TOKEN).is_valid().to_numpy(zero_copy_only=False)
        texts = texts.refused(sent, "it was sent as an event; bundles have an endpoint of their own")
        in_envelope = ~described & ~sent
        inner, inner_data = read_envelopes(data.filter(pa.array(in_envelope)))
        texts = texts.replaced(in_envelope, inner)
        data = pc.replace_with_mask(data, pa.array(in_envelope), inner_data)
    good, failures = fail_bad_bundles(batch.select(PLACE_COLUMNS), texts, pc.is_valid(data), kinds)
    bundles = pa.RecordBatch.from_arrays(
        [*texts.columns, *(batch.column(name) for name in (*PLACE_COLUMNS, "timestamp")), data],
        # The rows that break the schema's rules are those that are filtered out.
        schema=BUNDLE_SCHEMA,
    )
    return bundles if good.all() else bundles.filter(pa.array(good)), failures


def _header_lookup(headers: pa.MapArray) -> Callable[[str], pa.StringArray]:
    """Gives the first value of a header in each row, null for none. An order of magnitude faster than Arrow's
    ``map_lookup``."""
    ends = headers.offsets.to_numpy()
    first, count = int(ends[0]), int(ends[-1] - ends[0])
    keys, values = headers.keys.slice(first, count), headers.items.slice(first, count)
    row_of = np.repeat(np.arange(len(headers)), np.diff(ends))
    there = headers.is_valid().to_numpy(zero_copy_only=False)

    def value_of(name: str) -> pa.StringArray:
        places = np.flatnonzero(pc.equal(keys, name).to_numpy(zero_copy_only=False))[::-1]
        found = np.full(len(headers), -1, np.int64)
        # From the last to the first, so that of two values the first stays.
        found[row_of[places]] = places
        missing = (found < 0) | ~there
        if not missing.any():
            return values.take(int64_array(found))
        return values.take(pc.if_else(pa.array(missing), None, int64_array(found)))

    return value_of
