"""Sample events for a route, as records: lines of a file, an archive, or the unread part of the log. Moves no offset.

Lines of a file and of an archive skip the route's own filters: they were chosen for the route. Only an archive says
which token an event came with; where it does, ``only_keys`` applies.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from penstock.destinations.archive.archive_reader import archive_files, read_archive
from penstock.engine.delivery.route_positions import positions
from penstock.engine.pipeline import Pipeline
from penstock.engine.route_plan import RoutePlan, links
from penstock.errors import PenstockError
from penstock.record import Header, Record, entries, placed
from penstock.steps.chain import Chain

_LINES_AT_A_TIME = 10_000


@dataclass(frozen=True)
class SampleRange:
    """Records of one partition, in order, and the chain that they go through."""

    chain: Chain
    batches: Iterator[pa.RecordBatch]


def file_sample(plan: RoutePlan, path: Path) -> Iterator[SampleRange]:
    """The lines of an NDJSON file, plain or gzipped. Empty ones do not count."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise PenstockError("PEN-ENG-010", f"cannot read {path}: {error.strerror}.", "Check --sample.") from error
    with gzip.open(path, "rb") if zipped else path.open("rb") as lines:
        yield SampleRange(Chain(links(plan.head)), _records(plan, lines, 0, None))


def archive_sample(plan: RoutePlan, paths: Sequence[Path]) -> Iterator[SampleRange]:
    """The events of archived files, or of all files in folders."""
    for number, file in enumerate(file for path in paths for file in archive_files(path)):
        token = _token(file.name)
        chain = Chain(links(plan.head), only_keys=plan.only_keys if token is not None else ())
        yield SampleRange(chain, _records(plan, read_archive(file), number, token))


def waiting_sample(pipeline: Pipeline, plan: RoutePlan) -> Iterator[SampleRange]:
    """What the log holds for the route that it has not committed."""
    for position in positions(pipeline, plan.name):
        start = max(position.committed, position.oldest)
        if start < position.end:
            batches = pipeline.log.read(position.partition, start, position.end)
            yield SampleRange(plan.head_chain(), iter(batches))


def _records(plan: RoutePlan, lines: Iterable[bytes], partition: int, token: str | None) -> Iterator[pa.RecordBatch]:
    headers = {} if token is None else {Header.TOKEN.value: token}
    # Only steps with a namespace of their own use it; sample events count as from the route's first source.
    namespace = plan.sources[0]
    written = (line.strip() for line in lines)
    data = (line for line in written if line)
    first = 0
    while chunk := list(islice(data, _LINES_AT_A_TIME)):
        yield placed(entries(Record(line, namespace, headers=headers) for line in chunk), partition, first)
        first += len(chunk)


def _token(name: str) -> str | None:
    """The token in a file's name (``incoming.tok=site-2026-03-01T08-15-00.123.log.gz``), if it has one."""
    _, found, rest = name.partition(".tok=")
    token = rest.rsplit("-", 5)[0]
    return unquote(token) if found else None
