"""``penstock conflate status``: what became of the bundles of each kind, and how long they took to the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.open_pipeline import open_pipeline
from penstock.cli._support.options import CONFIG, ConfigOption, JsonOption
from penstock.cli._support.screen import count, moment, note, print_json, printable, show, table

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.cli._support.screen import JsonValue
    from penstock.conflation.tally import Tally
    from penstock.engine.operate.conflated_routes import ConflationStatus, KindStatus


def show_conflation(
    route: Annotated[str | None, typer.Argument(help="One route; all that keep state, without it.")] = None,
    sources: Annotated[bool, typer.Option("--sources", help="A line for each source and kind.")] = False,
    config: ConfigOption = CONFIG,
    json: JsonOption = False,
) -> None:
    """Show per kind, or per source and kind, how many bundles came, were conflated away, written, failed and wait, how
    long they took from receipt to database, and how many rows were compared and changed."""
    from penstock.engine.operate.conflated_routes import conflation_status

    with open_pipeline(config) as pipeline:
        found = conflation_status(pipeline, route)
    if json:
        print_json([_facts(each) for each in found])
        return
    show(*(_by_source(each) if sources else _by_kind(each) for each in found))
    for each in found:
        if each.unavailable is not None:
            note(f"{each.route}: the database cannot be asked: {printable(each.unavailable)}")
            continue
        silent = sum(not active for active in each.active.values())
        lag = "unknown" if each.position_lag is None else f"{count(each.position_lag)} records behind the log"
        note(f"{each.route}: {count(len(each.active))} sources, {count(silent)} of them inactive; position: {lag}")


_NUMBERS = ["received", "conflated", "written", "failed", "pending", "p50", "p95", "longest", "compared", "changed"]


def _by_kind(status: ConflationStatus) -> Table:
    from penstock.conflation.tally import Tally

    names = sorted({each.kind for each in status.kinds})
    rows = []
    for name in names:
        own = [each for each in status.kinds if each.kind == name]
        rows.append((status.route, printable(name), *_cells(Tally.sum(each.tally for each in own), own)))
    return table("route", "kind", *_NUMBERS, rows=rows, numbers=_NUMBERS)


def _by_source(status: ConflationStatus) -> Table:
    rows = [
        (status.route, printable(each.source), printable(each.kind), each.version or "-", *_cells(each.tally, [each]))
        for each in status.kinds
    ]
    return table("route", "source", "kind", "version", *_NUMBERS, rows=rows, numbers=_NUMBERS)


def _cells(tally: Tally, kinds: Sequence[KindStatus]) -> list[str]:
    pending = sum(each.bundles for kind in kinds for each in kind.pending)
    counts = [*(tally[name] for name in ("received", "conflated", "written", "failed")), pending]
    delays = [_delay(tally.delay(share)) for share in (0.5, 0.95, 1.0)]
    return [*map(count, counts), *delays, count(tally["rows_compared"]), count(_changed(tally))]


def _changed(tally: Tally) -> int:
    return sum(tally[name] for name in ("rows_inserted", "rows_updated", "rows_deleted"))


def _delay(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _facts(status: ConflationStatus) -> JsonValue:
    return {
        "route": status.route,
        "unavailable": status.unavailable,
        "position_lag": status.position_lag,
        "sources": dict(status.active),
        "kinds": [
            {
                "source": each.source,
                "kind": each.kind,
                "version": each.version,
                "updated_at": None if each.updated_at is None else moment(each.updated_at),
                "counts": dict(each.tally.counts),
                "pending": sum(pending.bundles for pending in each.pending),
                "reasons": sorted({pending.reason for pending in each.pending}),
                "delay_p50": each.tally.delay(0.5),
                "delay_p95": each.tally.delay(0.95),
                "delay_longest": each.tally.delay(1.0),
            }
            for each in status.kinds
        ],
    }
