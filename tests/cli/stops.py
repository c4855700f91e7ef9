"""A shop whose seventh order of ten is refused by its database, as `on_error` has it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.record import Record, entries
from tests.cli.projects import Project
from tests.support.duckdb_file import open_file

FIRST_TIME = datetime(2026, 1, 31, 9, 0, tzinfo=UTC)

CONFIG = """\
name: shop
sources:
  web: {type: file, path: ./orders.ndjson}
routes:
  warehouse:
    from: web
    on_error: %s
    steps:
      - where: "amount < 1000"
      - omit: [card]
    to: {type: duckdb, path: ./warehouse.duckdb, table: orders, adopt: [orders]}
  audit: {from: web, to: {type: "null"}}
"""


@dataclass(frozen=True)
class Shop(Project):
    def append(self, *orders: Any, source: str = "web", first: int = 0) -> None:
        """Put orders into the log, a minute apart."""
        pipeline = self.open()
        with pipeline.log.writer(source) as writer:
            writer.append(
                entries(
                    Record(
                        order if isinstance(order, bytes) else json.dumps(order).encode(),
                        "orders",
                        timestamp=FIRST_TIME + timedelta(minutes=first + number),
                    )
                    for number, order in enumerate(orders)
                )
            )
        pipeline.ledger.close()

    def json(self, *words: str, answer: str | None = None) -> Any:
        ran = self.penstock(*words, "--json", answer=answer)
        assert ran.code == 0, ran.err
        return json.loads(ran.out)

    def lines(self, *words: str, answer: str | None = None) -> list[Any]:
        return [json.loads(line) for line in self.penstock(*words, "--json", answer=answer).out.splitlines()]

    def fix(self) -> None:
        """Take the constraint away, as the owner of the database would."""
        with open_file(self.folder / "warehouse.duckdb") as warehouse:
            warehouse.execute(
                "CREATE TABLE fixed AS FROM orders; DROP TABLE orders; ALTER TABLE fixed RENAME TO orders"
            )

    def loaded(self) -> list[int]:
        with open_file(self.folder / "warehouse.duckdb", read_only=True) as warehouse:
            return [row[0] for row in warehouse.execute("SELECT id FROM orders ORDER BY id").fetchall()]

    def committed(self, route: str = "warehouse") -> int:
        (offset,) = self.json("offset", "show", route)["offsets"]
        return int(offset["committed"])


def order(number: int) -> dict[str, object]:
    return {"id": number, "amount": -7 if number == 7 else number, "card": "4111"}


def shop(folder: Path, on_error: str = "stop") -> Shop:
    """Ten orders in the log, and a database that takes no amount below 1."""
    project = Shop(folder)
    project.config.write_text(CONFIG % on_error)
    with open_file(folder / "warehouse.duckdb") as warehouse:
        warehouse.execute("CREATE TABLE orders (id BIGINT, amount BIGINT, CONSTRAINT positive CHECK (amount > 0))")
    project.append(*map(order, range(1, 11)))
    return project
