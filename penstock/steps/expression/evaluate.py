"""Computes an expression over the rows of a batch: fields come from the spans that ``find`` has found."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.json.find import Found
from penstock.json.paths import Path
from penstock.steps.expression.columns import INT, Column, FieldColumn, constant, texts
from penstock.steps.expression.functions import FUNCTIONS
from penstock.steps.expression.tree import Field, Literal, Node, RecordField


def evaluate(node: Node, batch: pa.RecordBatch, found: Found, places: dict[Path, int]) -> Column:
    """The expression's value in every row. ``places`` says at which index of ``found`` each path is."""
    columns = {path: FieldColumn(found, place) for path, place in places.items()}

    def value(part: Node) -> Column:
        if isinstance(part, Literal):
            return constant(part.value)
        if isinstance(part, Field):
            return columns[part.path]
        if isinstance(part, RecordField):
            return _record_field(part, batch)
        return FUNCTIONS[part.name](*part.constants)([value(argument) for argument in part.arguments])

    return value(node)


def _record_field(field: RecordField, batch: pa.RecordBatch) -> Column:
    values = batch.column(field.name)
    if field.header is not None:
        values = pc.map_lookup(values, field.header, "first")
    elif field.name == "timestamp":
        values = pc.strftime(values, "%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_integer(values.type):
        ints = values.to_numpy(zero_copy_only=False).astype(np.int64)
        return Column(np.full(len(ints), INT, np.int8), ints)
    return texts(values, values.is_valid().to_numpy(zero_copy_only=False))
