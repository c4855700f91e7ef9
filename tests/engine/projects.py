"""Small pipelines for tests: a config in a folder, opened, with nothing running."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.config.loading import load
from penstock.engine.ledger import Settlement
from penstock.engine.pipeline import Pipeline
from penstock.record import Record, entries

TWO_ROUTES = """\
name: shop
log: {segment_bytes: 4KB, retention: {max_age: 1ms}}
sources:
  web: {type: file, path: ./web.ndjson}
  other: {type: file, path: ./other.ndjson}
routes:
  a: {from: web, to: {type: "null"}}
  b: {from: [web, other], to: {type: "null"}}
"""


def pipeline(folder: Path, text: str = TWO_ROUTES) -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return Pipeline.open(load(path))


def append(opened: Pipeline, source: str, data: Iterable[bytes]) -> int:
    """One append per record; returns the partition."""
    writer = opened.log.writer(source)
    for item in data:
        writer.append(entries([Record(item, namespace=source)]))
    writer.close()
    return writer.partition


def append_all(opened: Pipeline, source: str, data: Iterable[bytes]) -> int:
    """All records in one append; returns the partition."""
    writer = opened.log.writer(source)
    writer.append(entries(Record(item, namespace=source) for item in data))
    writer.close()
    return writer.partition


def commit(opened: Pipeline, route: str, partition: int, end: int) -> None:
    """As if the route had delivered up to ``end``."""
    start = opened.ledger.offsets(route)[partition].committed
    batch = opened.ledger.begin(route, {partition: (start, end)})
    assert batch is not None
    opened.ledger.commit(batch, Settlement(end - start, end - start))
