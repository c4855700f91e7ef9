"""Bundles that are whole JSON objects, with what describes them beside their data.

Of a repeated member the last one counts. Depth and size do not matter: nothing looks into a bundle's data.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.conflation.bundle_rules import TEXTS
from penstock.conflation.check_bundles import BundleTexts
from penstock.conflation.newest import Flags
from penstock.json.arrow_text import text_of, verbatim_values
from penstock.json.document_problems import problem
from penstock.json.documents import documents
from penstock.json.find import Found, find
from penstock.json.tokens import ABSENT, NULL, STRING


def read_envelopes(objects: pa.BinaryArray) -> tuple[BundleTexts, pa.BinaryArray]:
    """What describes each bundle, and its data as it is written; null where there is none."""
    found = find(objects, [*((str(name),) for name in TEXTS), ("data",)])
    docs = documents(objects)
    # Row by row, for those that are no JSON objects.
    unreadable = {
        row: problem(docs, row, int(found.broken_at[row])).message for row in np.flatnonzero(~found.valid).tolist()
    }
    kinds = found.kind[:, : len(TEXTS)]
    not_text = [~np.isin(kinds[:, path], (ABSENT, NULL, STRING)) for path in range(len(TEXTS))]
    columns = [_texts_at(found, path) for path in range(len(TEXTS))]
    return BundleTexts(columns, not_text, unreadable), verbatim_values(found, len(TEXTS))


def _texts_at(found: Found, path: int) -> pa.StringArray:
    """The values at a path, those that are no text as they are written; null where there is none, or a null."""
    there: Flags = ~np.isin(found.kind[:, path], (ABSENT, NULL))
    return pc.if_else(pa.array(there), text_of(found, path), None)
