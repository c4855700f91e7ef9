"""Compiles the functions that work on JSON bytes, so that the first event does not wait for it.

numba caches compiled code beside the package. This runs flattening, every step and a stager on a few documents that
reach each compiled function.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.config.pipeline_config import RouteConfig
from penstock.destinations.sql.stage.stager import TypedStager
from penstock.destinations.sql.stage.table_name import TableChooser
from penstock.engine.route_plan import links, plan_steps
from penstock.flatten import flatten
from penstock.flatten.casts import parse_cast
from penstock.flatten.fit_column import fit, fit_json
from penstock.holding.packed_rows import FEW_BYTES, pack_rows, unpack_rows
from penstock.record import Record, entries, placed
from penstock.registry import Kind, component, components
from penstock.steps.chain import Chain
from penstock.steps.contract import HoldingStep, Shard

_DOCUMENTS = (
    b'{"s":"x","\\u0065":"\\u00e9","i":1,"f":1.5,"h":1.2345678901234567,"b":true,"a":[1, "x"],"o":{"n":null}}',
    b'{"_timestamp":"2026-01-01T00:00:00Z","A":2,"i":2,"d":"1.25","c":"7","g":"1.5","y":"true"}',
    b'{"s":"Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0","d":"x","a":{}}',
    b'{"s":"Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0","ua":{"x":1}}',
    b'{"i":1,"i":2',
    b"[1]",
)
_CASTS = {"/d": "numeric(12,2)", "/c": "bigint", "/g": "double", "/y": "boolean", "/s": "varchar(1)"}
_STEPS: list[dict[str, Any]] = [
    {"lookup": {"rules": [{"name": "user_agent_parse", "from": "/s", "to": "/ua"}]}},
    {"where": "i > 0 and s in ('x', 'y') or o.n is null"},
    {"set": {"z": "i + 1", "o.z": "upper(s)"}},
    {"rename": {"b": "c", "o.z": "/q"}},
    {"omit": ["f"]},
    {"split": "a"},
    {"map": {"fields": [{"src": "/s", "dst": "/t/s"}, {"dst": "/k", "action": "constant", "value": 1}]}},
    {"pick": ["t.s", "i", "k"]},
    {"flatten_fields": {}},
]
_OF_ONE_FIELD: list[dict[str, Any]] = [{"where": "i > 0"}, {"where": "s = 'x'"}]
"""Where one path alone is looked for, numba sees arrays of another kind."""


_HOLDING: list[dict[str, Any]] = [
    {"dedupe": {"key": ["s", "i", "f"], "window": 1}},
    {"gather": {"key": ["s"], "until": "i > 1", "at_most": 1}},
]


def _warm_up_holding(config: dict[str, Any], batch: pa.RecordBatch) -> None:
    route = RouteConfig.model_validate({"from": "web", "steps": [config], "to": {"type": "null"}})
    ((name, options),) = route.step_configs
    step: HoldingStep[Any] = component(Kind.STEP, name).implementation_class()(options)
    scan = step.scan(batch, bytes(16))
    items = np.zeros(len(scan.high), step.item_type)
    items["high"], items["low"], items["bits"] = scan.high, scan.low, scan.bits
    state = step.new_state(Shard(0, 1, bytes(16)))
    many = np.zeros(FEW_BYTES, step.item_type)
    unpack_rows([pack_rows(many)], many.dtype)
    for later in range(3):
        items["time"] += later
        state.decide(items, [later * 10**7], [])


def warm_up(steps: Collection[str] | None = None, destinations: Collection[str] = ()) -> None:
    """For these steps, or for all, and these destinations. Takes about a second when the cache is there, more than a
    minute when it is not."""
    warm_up_documents(steps)
    warm_up_components(steps)
    for name in destinations:
        component(Kind.DESTINATION, name).implementation_class()
        component(Kind.DESTINATION, name).warm_up()


def warm_up_components(steps: Collection[str] | None = None) -> None:
    """What has a way to warm up of its own, of these steps, or of all."""
    for name, step in components(Kind.STEP).items():
        if steps is None or name in steps:
            step.warm_up()


def warm_up_documents(steps: Collection[str] | None = None) -> None:
    """What works on JSON documents, for these steps, or for all."""
    for kind in (pa.binary(), pa.large_binary()):
        flatten(pa.array(_DOCUMENTS, kind), _CASTS, infer_timestamps=True)
    chosen = [step for step in _STEPS if steps is None or any(name in steps for name in step)]
    batch = placed(entries(Record(document, namespace="web") for document in _DOCUMENTS), 0, 0)
    for some in (chosen, *([step] for step in _OF_ONE_FIELD if steps is None)):
        route = RouteConfig.model_validate({"from": "web", "steps": some, "to": {"type": "null"}})
        Chain(links(plan_steps(route.step_configs))).run(batch)
    with TemporaryDirectory(prefix="penstock-warm-up-") as folder:
        stager = TypedStager(Path(folder), TableChooser("{{ s }}", 63), _CASTS, 63)
        stager.add(batch)
        stager.finish()
    for sql_type in ("bigint", "double", "numeric(38,18)", "timestamptz", "boolean", "text"):
        fit_json(pa.array(['"x"', '"7"', "1.5", "[1]"]), parse_cast(sql_type))
        fit(pa.array([0.1, 1e30]), parse_cast(sql_type))
    for config in _HOLDING:
        if steps is None or any(name in steps for name in config):
            _warm_up_holding(config, batch)
