"""A pipeline with a SQL route whose batches are delivered without Spark, for the verbs that look at tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.engine.delivery.task import run_task
from penstock.engine.ledger import Settlement
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.log.read_ranges import Stretch
from penstock.record import Record, entries
from tests.cli.projects import Project


@dataclass(frozen=True)
class Warehouse(Project):
    """``target`` is the destination's part of the config, but for what ``configured`` adds."""

    target: Mapping[str, object]

    def configured(self, **options: object) -> Warehouse:
        """The project with other options of its destination, and a second route that has no tables."""
        text = {
            "name": "shop",
            "data_dir": "./data",
            "sources": {"web": {"type": "file", "path": "./events.ndjson"}},
            "routes": {
                "warehouse": {
                    "from": "web",
                    "steps": [{"map": {"fields": [{"src": "/price", "action": "cast", "type": "numeric(12,2)"}]}}],
                    "to": {**self.target, **options},
                },
                "audit": {"from": "web", "to": {"type": "null"}},
            },
        }
        self.config.write_text(json.dumps(text))
        return self

    def append(self, *documents: Any) -> None:
        """Put events into the log."""
        pipeline = self.open()
        with pipeline.log.writer("web") as writer:
            writer.append(entries(Record(json.dumps(document).encode(), "web") for document in documents))
        pipeline.ledger.close()

    def deliver(self, *documents: Any) -> None:
        """Append events and load what waits, as the engine would."""
        self.append(*documents)
        pipeline = self.open()
        plan = replace(pipeline.plan("warehouse"), stage_dir=self.folder / "stage")
        (partition,) = pipeline.log.partitions(["web"])
        end = pipeline.log.bounds(partition).end
        pipeline.ledger.open_route("warehouse", {partition: 0})
        start = pipeline.ledger.offsets("warehouse")[partition].committed
        batch = pipeline.ledger.begin("warehouse", {partition: (start, end)})
        assert batch is not None
        report = run_task(plan, pipeline.log.read(partition, start, end), Stretch(partition, start, end))
        receipt = plan.destination().write(batch, report.parts, RouteBook(pipeline.ledger, "warehouse"))
        pipeline.ledger.commit(batch, Settlement(end - start, receipt.rows, tables=receipt.tables))
        pipeline.ledger.close()

    def json(self, *words: str) -> Any:
        ran = self.penstock(*words, "--json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out)


def duckdb_warehouse(folder: Path) -> Warehouse:
    return Warehouse(folder, {"type": "duckdb", "path": "./warehouse.duckdb"}).configured()


def postgres_warehouse(folder: Path, dsn: str, schema: str) -> Warehouse:
    return Warehouse(folder, {"type": "postgres", "url": dsn, "database_schema": schema}).configured()
