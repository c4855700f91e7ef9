"""A route over a real log, ledger and destination, without Spark, for tests of what becomes of its batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

from penstock.config.pipeline_config import OnError
from penstock.destinations.contract import NULL_TABLE_BOOK, Batch, Destination, Part, Receipt, Stager, TableBook
from penstock.destinations.file.config import FileConfig
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.task import run_task
from penstock.engine.delivery.task_report import BatchReport, add_up
from penstock.engine.failed.failed_store import FailedEntry, FailedStore
from penstock.engine.ledger import Ledger, sqlite_url
from penstock.engine.route_plan import RoutePlan, plan_steps
from penstock.errors import PenstockError, RefusedError
from penstock.log.local_log import LocalLog
from penstock.log.read_ranges import Stretch
from penstock.record import Record, entries
from penstock.steps.where.config import WhereConfig


class Bench:
    """A route over a log, into files, with nothing running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = LocalLog(folder / "log")
        self.ledger = Ledger.open(sqlite_url(folder / "ledger.db"), "test")
        self.failed = FailedStore(folder / "failed")
        self.plan = RoutePlan(
            name="out",
            sources=("web",),
            namespace=".*",
            steps=plan_steps([("where", WhereConfig(condition="n > 1"))]),
            destination_name="file",
            destination_config=FileConfig(path=folder / "out"),
            stage_dir=folder / "stage",
        )
        self.stopping = Event()
        self.destination: Destination[FileConfig] = self.plan.destination()
        self.writer = self.log.writer("web")
        self.ledger.open_route("out", {self.writer.partition: 0})

    def stops(self) -> None:
        """Let the route stop at the first record that fails."""
        self.plan = replace(self.plan, on_error=OnError.STOP)

    def append(self, *data: bytes, headers: dict[str, str] | None = None) -> None:
        self.writer.append(entries(Record(d, namespace="web", headers=headers or {}) for d in data))

    def report(self, start: int, end: int) -> BatchReport:
        partition = self.writer.partition
        batches = self.log.read(partition, start, end)
        return add_up([run_task(self.plan, batches, Stretch(partition, start, end))])

    def deliver(self, start: int, end: int, changed: Callable[[BatchReport], BatchReport] = lambda same: same) -> None:
        delivery = Delivery(self.plan, self.destination, self.log, self.ledger, self.failed, self.stopping)
        delivery.deliver(changed(self.report(start, end)))

    @property
    def committed(self) -> int:
        return self.ledger.offsets("out")[self.writer.partition].committed

    def failures(self) -> list[FailedEntry]:
        return list(self.failed.read("out", self.ledger.failed_extent("out")))

    def written(self) -> list[int]:
        lines = [
            line for file in sorted((self.folder / "out").glob("*.ndjson")) for line in file.read_text().splitlines()
        ]
        return [json.loads(line)["n"] for line in lines]


class Awkward(Destination[FileConfig]):
    """The real destination behind a door that the test opens and shuts."""

    def __init__(self, real: Destination[FileConfig], errors: Sequence[PenstockError | None]) -> None:
        super().__init__(real.config)
        self.real, self.errors = real, list(errors)

    def stager(self, directory: Path, casts: Mapping[str, str]) -> Stager:
        return self.real.stager(directory, casts)

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return self.real.write(batch, parts, book)


class Fussy(Awkward):
    """Takes a batch or refuses it as a whole, for the sake of single values. It remembers what it was given."""

    def __init__(self, real: Destination[FileConfig], refused: Collection[int]) -> None:
        super().__init__(real, [])
        self.refused = refused
        self.tries: list[list[int]] = []

    def write(self, batch: Batch, parts: Sequence[Part], book: TableBook = NULL_TABLE_BOOK) -> Receipt:
        rows = [json.loads(line)["n"] for part in parts for line in Path(part.path).read_text().splitlines()]
        self.tries.append(rows)
        for n in rows:
            if n in self.refused:
                raise RefusedError("PEN-TST-002", f"{n} is unlucky", "Nothing was written.")
        return super().write(batch, parts, book)
