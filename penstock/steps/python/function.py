"""A user's function, loaded from its file by the process that runs it, and called with the shape that it takes."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import RouteError
from penstock.outcome import PLACE_COLUMNS
from penstock.record import RECORD_SCHEMA
from penstock.steps.python.config import PythonConfig, Shape
from penstock.steps.python.interrupts import Interrupts
from penstock.steps.python.written_numbers import JsonNumbers

if TYPE_CHECKING:
    import pandas as pd

Treatment = Callable[[pa.RecordBatch], pa.RecordBatch]
"""From records to records. Raises whatever the function raises, and ``TypeError`` for what is no batch of records."""


def load(config: PythonConfig, interrupts: Interrupts) -> Treatment:
    """The function of a config as one over record batches."""
    function = _function(config.file, config.function, interrupts)
    shape = config.batch or _annotated(function) or Shape.ARROW

    def over_arrow(batch: pa.RecordBatch) -> pa.RecordBatch:
        return _from_arrow(function(pa.Table.from_batches([batch])))

    def over_pandas(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = JsonNumbers()
        return _from_pandas(function(_to_pandas(batch, numbers)), numbers)

    return over_pandas if shape is Shape.PANDAS else over_arrow


def _function(file: Path, name: str, interrupts: Interrupts) -> Callable[[Any], Any]:
    # So that the file can import its neighbours.
    sys.path.insert(0, str(file.parent))
    try:
        found = getattr(_module(file), name)
    # Also what is not an Exception, such as sys.exit().
    except BaseException as error:
        if interrupts.caused(error):
            raise
        raise RouteError(
            "PEN-STP-002",
            f"{file} cannot be loaded: {type(error).__name__}: {error}.",
            f"Fix the error in {file} and restart the pipeline.",
        ) from error
    finally:
        sys.path.remove(str(file.parent))
    if not callable(found):
        raise RouteError(
            "PEN-STP-002", f"'{name}' in {file} is not a function.", f"Set `function` to a function defined in {file}."
        )
    return typing.cast("Callable[[Any], Any]", found)


def _module(file: Path) -> ModuleType:
    """The file as a module of this process: run once, and once more when its text is another.

    Its name is its own, whatever other files are called, and can be imported while it runs: dataclasses and other parts
    of the standard library look their module up by name.
    """
    text = file.read_bytes()
    digest = hashlib.sha256(b"\0".join([bytes(file.absolute()), text])).hexdigest()
    name = f"penstock_user_{digest[:16]}_{file.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None, "the config has seen that it is Python"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        # Not by the loader: its cached bytecode is told from another text only by its second and size.
        exec(compile(text, file, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _annotated(function: Callable[[Any], Any]) -> Shape | None:
    hints = dict(getattr(function, "__annotations__", {}))
    hints.pop("return", None)
    if not hints:
        return None
    # By its name: the annotation may be text, and pandas need not be loaded to compare it.
    hint = next(iter(hints.values()))
    name = hint if isinstance(hint, str) else getattr(hint, "__name__", "")
    return Shape.PANDAS if name.endswith("DataFrame") else Shape.ARROW


def _from_arrow(result: object) -> pa.RecordBatch:
    if isinstance(result, pa.RecordBatch):
        result = pa.Table.from_batches([result])
    if not isinstance(result, pa.Table):
        raise TypeError(f"the function returned {type(result).__name__}, not a pyarrow.Table")
    _require_columns(result.column_names)
    whole = result if "item" in result.column_names else result.append_column("item", pa.array([0] * len(result)))
    table = whole.select(RECORD_SCHEMA.names).cast(RECORD_SCHEMA).combine_chunks()
    table.validate(full=True)
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA)


def _to_pandas(batch: pa.RecordBatch, numbers: JsonNumbers) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, Any] = {name: batch.column(name).to_pandas() for name in (*PLACE_COLUMNS, "timestamp")}
    for name in ("namespace", "op", "mode", "key"):
        columns[name] = pd.Series(batch.column(name).to_pylist(), dtype=object)
    columns["headers"] = pd.Series([dict(each or ()) for each in batch.column("headers").to_pylist()], dtype=object)
    parsed = [None if data is None else numbers.read(data) for data in batch.column("data").to_pylist()]
    columns["data"] = pd.Series(parsed, dtype=object)
    return pd.DataFrame(columns)


def _from_pandas(result: object, numbers: JsonNumbers) -> pa.RecordBatch:
    import pandas as pd

    if not isinstance(result, pd.DataFrame):
        raise TypeError(f"the function returned {type(result).__name__}, not a pandas.DataFrame")
    _require_columns(list(result.columns))
    arrays = []
    for field in RECORD_SCHEMA:
        values: list[Any] = result[field.name].tolist() if field.name in result else [0] * len(result)
        if field.name == "data":
            values = [value if value is None or isinstance(value, bytes) else numbers.write(value) for value in values]
        elif field.name == "headers":
            values = [None if value is None else list(value.items()) for value in values]
        arrays.append(pa.array(values, field.type, from_pandas=True))
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)


def _require_columns(names: list[str]) -> None:
    # A function that makes all columns itself may know nothing of items: without one a row is the record itself.
    missing = [name for name in RECORD_SCHEMA.names if name not in (*names, "item")]
    if missing:
        raise TypeError(f"the function returned no column '{missing[0]}'")
