"""``penstock sample status``: what policies have decided, and how full a sampler is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import count, note, print_json, show, table

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.engine.operate.samplers import SamplerStatus


def show_samplers(
    route: Annotated[str | None, typer.Argument(help="One route; all that sample, without it.")] = None,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Show what the policies of samplers have decided, what became of spans, and how full their caches are."""
    from penstock.engine.operate.samplers import sampler_status

    with open_pipeline(config) as pipeline:
        found = sampler_status(pipeline, route)
    if json:
        print_json([{"route": each.route, "counts": dict(each.counts), "levels": dict(each.levels)} for each in found])
        return
    if not any(each.counts or each.levels for each in found):
        note("no sampler has had a batch yet")
        return
    show(_decisions(found))
    show(_caches(found))
    show(_totals(found))


def _decisions(found: list[SamplerStatus]) -> Table:
    rows = [
        (each.route, decision.policy, decision.answer, decision.decision_from or "-", count(traces))
        for each in found
        for decision, traces in each.decisions.items()
    ]
    return table("route", "policy", "answer", "from", "traces", rows=rows, numbers=["traces"])


def _caches(found: list[SamplerStatus]) -> Table:
    rows = [
        (each.route, name, count(size), count(limit)) for each in found for name, (size, limit) in each.caches.items()
    ]
    return table("route", "cache", "traces", "at most", rows=rows, numbers=["traces", "at most"])


def _totals(found: list[SamplerStatus]) -> Table:
    rows = [(each.route, name, count(number)) for each in found for name, number in each.totals.items()]
    return table("route", "counted", "number", rows=rows, numbers=["number"])
