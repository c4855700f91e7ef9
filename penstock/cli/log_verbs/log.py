"""``penstock log``: what the log holds. Reading takes no lock, so it is safe while the pipeline runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.offset_ranges import OffsetRange, range_argument
from penstock.cli._support.open_pipeline import read_config
from penstock.cli._support.options import CONFIG, ConfigOption, FullOption, JsonOption, NdjsonOption
from penstock.cli._support.record_lines import print_records
from penstock.cli._support.screen import count, note, print_json, show, table

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.log.local_log import LocalLog
    from penstock.log.reader import Bounds
    from penstock.record import Record

app = typer.Typer(no_args_is_help=True, help="What the log holds.")

PartitionOption = Annotated[int | None, typer.Option("--partition", "-p", metavar="P", help="Only this partition.")]


def show_log(
    offsets: Annotated[
        str | None, typer.Argument(metavar="[A..B]", help="Offsets, both ends included: 13..15, 13, 13.. or ..15.")
    ] = None,
    partition: PartitionOption = None,
    last: Annotated[int, typer.Option(min=1, metavar="N", help="Without offsets: the newest N per partition.")] = 10,
    full: FullOption = False,
    config: ConfigOption = CONFIG,
    json: NdjsonOption = False,
) -> None:
    """Show records: place, time, mode, op, namespace and data."""
    wanted = None if offsets is None else range_argument(offsets, "A..B")
    log = open_log(config)
    bounds = _bounds(log, partition)
    if print_records(_records(log, bounds, wanted, last), json, full) == 0:
        there = {p: log.reader(p).stored_span() for p in bounds}
        held = ", ".join(f"partition {p} holds {h.first}..{h.last}" for p, h in there.items() if h.first is not None)
        note(f"no records there; {held or 'the log is empty'}")


def current(partition: PartitionOption = None, config: ConfigOption = CONFIG, json: JsonOption = False) -> None:
    """Show the newest offset of every partition, and the one that the next record gets."""
    log = open_log(config)
    owners = log.partitions()
    found = {p: (log.reader(p).stored_span().last, b.end) for p, b in _bounds(log, partition).items()}
    if json:
        places = found.items()
        print_json([{"partition": p, "source": owners[p].source, "current": c, "next": n} for p, (c, n) in places])
        return
    rows = [
        (str(p), owners[p].source, "-" if last is None else count(last), count(end)) for p, (last, end) in found.items()
    ]
    show(table("partition", "source", "current", "next", rows=rows, numbers=("partition", "current", "next")))


def oldest(partition: PartitionOption = None, config: ConfigOption = CONFIG, json: JsonOption = False) -> None:
    """Show the oldest offset that every partition still holds."""
    log = open_log(config)
    owners = log.partitions()
    found = {p: log.reader(p).stored_span().first for p in chosen_partitions(log, partition)}
    if json:
        print_json([{"partition": p, "source": owners[p].source, "oldest": first} for p, first in found.items()])
        return
    rows = [(str(p), owners[p].source, "-" if first is None else count(first)) for p, first in found.items()]
    show(table("partition", "source", "oldest", rows=rows, numbers=("partition", "oldest")))


def open_log(config: Path) -> LocalLog:
    """The log of a pipeline, to read. It need not have run."""
    from penstock.engine.layout import Layout
    from penstock.log.local_log import LocalLog

    read = read_config(config)
    return LocalLog(Layout(read.data_dir).log, read.log)


def chosen_partitions(log: LocalLog, partition: int | None) -> list[int]:
    """All partitions, or the one that was named. Raises if there is none of that number."""
    if partition is None:
        return list(log.partitions())
    log.owner(partition)
    return [partition]


def _bounds(log: LocalLog, partition: int | None) -> dict[int, Bounds]:
    return {p: log.bounds(p) for p in chosen_partitions(log, partition)}


def _records(log: LocalLog, bounds: Mapping[int, Bounds], wanted: OffsetRange | None, last: int) -> Iterator[Record]:
    from penstock.record import records

    for partition, held in bounds.items():
        start, end = (max(held.oldest, held.end - last), held.end)
        if wanted is not None:
            start = max(wanted.first, held.oldest)
            end = held.end if wanted.last is None else min(wanted.last + 1, held.end)
        if start < end:
            for batch in log.read(partition, start, end):
                yield from records(batch)
