"""The ledger's tables. What the accounting promises is a constraint here, not only code above it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

LEDGER_VERSION = 1


@dataclass(frozen=True)
class Tables:
    metadata: sa.MetaData
    about: sa.Table
    partitions: sa.Table
    offsets: sa.Table
    batches: sa.Table
    deliveries: sa.Table
    table_totals: sa.Table
    skips: sa.Table
    additions: sa.Table
    totals: sa.Table
    states: sa.Table
    halts: sa.Table
    acknowledged: sa.Table
    interventions: sa.Table
    courses: sa.Table
    replays: sa.Table
    settled: sa.Table
    waiting: sa.Table
    waiting_offsets: sa.Table
    columns: sa.Table
    changes: sa.Table
    shapes: sa.Table
    locks: sa.Table
    lineages: sa.Table
    adopted: sa.Table
    accepted: sa.Table
    places: sa.Table


def tables(schema: str | None) -> Tables:
    """``schema`` keeps pipelines apart that share one PostgreSQL; SQLite has a file per pipeline instead."""
    metadata = sa.MetaData(schema=schema)
    text, big = sa.Text(), sa.BigInteger()

    def column(name: str, kind: sa.types.TypeEngine[Any], key: bool = False) -> sa.Column[Any]:
        return sa.Column(name, kind, primary_key=key, nullable=False, autoincrement=False)

    return Tables(
        metadata,
        about=sa.Table("about", metadata, column("key", text, key=True), column("value", text)),
        partitions=sa.Table(
            "partitions", metadata, column("partition", sa.Integer(), key=True), column("identity", text)
        ),
        offsets=sa.Table(
            "offsets",
            metadata,
            column("route", text, key=True),
            column("partition", sa.Integer(), key=True),
            column("committed", big),
            column("hold", big),
            sa.CheckConstraint("hold <= committed", name="hold_is_not_ahead"),
        ),
        batches=sa.Table(
            "batches",
            metadata,
            column("route", text, key=True),
            column("number", big, key=True),
            column("ranges", text),
            column("began_at", sa.Float()),
            sa.Column("committed_at", sa.Float()),
            sa.Column("items", big),
            sa.Column("added", big),
            sa.Column("loaded", big),
            sa.Column("skipped", big),
            sa.Column("failed", big),
            sa.Column("waiting", big),
            sa.Column("seconds", sa.Float()),
        ),
        deliveries=sa.Table(
            "deliveries",
            metadata,
            column("route", text, key=True),
            column("number", big, key=True),
            column("target", text, key=True),
            column("rows", big),
            column("status", text),
            sa.Column("merged", big, nullable=False, server_default="0"),
        ),
        table_totals=sa.Table(
            "table_totals",
            metadata,
            column("route", text, key=True),
            column("target", text, key=True),
            column("rows", big),
            column("merged", big),
        ),
        skips=sa.Table(
            "skips",
            metadata,
            column("route", text, key=True),
            column("step", text, key=True),
            column("items", big),
        ),
        additions=sa.Table(
            "additions",
            metadata,
            column("route", text, key=True),
            column("step", text, key=True),
            column("items", big),
        ),
        totals=sa.Table(
            "totals",
            metadata,
            column("route", text, key=True),
            column("items", big),
            column("added", big),
            column("loaded", big),
            column("skipped", big),
            column("failed", big),
            column("waiting", big),
            column("failed_entries", big),
            column("failed_bytes", big),
            sa.CheckConstraint("items + added = loaded + skipped + failed + waiting", name="everything_accounted"),
        ),
        states=sa.Table(
            "states",
            metadata,
            column("route", text, key=True),
            column("state", text),
            column("since", sa.Float()),
            column("message", text),
        ),
        halts=sa.Table(
            "halts",
            metadata,
            column("route", text, key=True),
            column("partition", sa.Integer()),
            column("offset", big),
            column("step", text),
            column("code", text),
            column("message", text),
            column("at", sa.Float()),
        ),
        acknowledged=sa.Table(
            "acknowledged",
            metadata,
            column("route", text, key=True),
            column("partition", sa.Integer(), key=True),
            column("first", big, key=True),
            column("end", big),
            sa.CheckConstraint('"first" < "end"', name="something_is_acknowledged"),
        ),
        interventions=sa.Table(
            "interventions",
            metadata,
            sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
            column("at", sa.Float()),
            column("route", text),
            column("act", text),
            column("who", text),
            column("reason", text),
            column("partition", sa.Integer()),
            column("first", big),
            column("end", big),
        ),
        courses=sa.Table(
            "courses",
            metadata,
            column("route", text, key=True),
            column("generation", sa.Integer()),
            column("last_number", big),
        ),
        replays=sa.Table(
            "replays",
            metadata,
            column("route", text, key=True),
            column("partition", sa.Integer()),
            column("offset", big),
            column("entries", text),
        ),
        settled=sa.Table(
            "settled",
            metadata,
            column("route", text, key=True),
            column("entry", big, key=True),
            column("action", text),
            column("at", sa.Float()),
        ),
        waiting=sa.Table(
            "waiting",
            metadata,
            column("route", text, key=True),
            column("number", big, key=True),
            column("target", text, key=True),
            column("delivered_as", text),
            column("ranges", text),
            column("passed_over", text),
            column("acknowledged", text),
            column("rows", big),
            column("since", sa.Float()),
            column("attempts", sa.Integer()),
            column("reason", text),
            sa.CheckConstraint("rows > 0", name="something_waits"),
        ),
        waiting_offsets=sa.Table(
            "waiting_offsets",
            metadata,
            column("route", text, key=True),
            column("number", big, key=True),
            column("target", text, key=True),
            column("partition", sa.Integer(), key=True),
            column("first", big),
            column("end", big),
        ),
        columns=sa.Table(
            "columns",
            metadata,
            column("route", text, key=True),
            column("target", text, key=True),
            column("name", text, key=True),
            column("paths", text),
            column("since", sa.Float()),
        ),
        changes=sa.Table(
            "changes",
            metadata,
            sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
            column("at", sa.Float()),
            column("route", text),
            column("target", text),
            column("statement", text),
        ),
        shapes=sa.Table(
            "shapes",
            metadata,
            column("route", text, key=True),
            column("target", text, key=True),
            column("shape", text),
            column("last_change", sa.Integer()),
        ),
        locks=sa.Table(
            "locks", metadata, column("name", text, key=True), column("holder", text), column("until", sa.Float())
        ),
        lineages=sa.Table(
            "lineages",
            metadata,
            column("route", text, key=True),
            column("partition", sa.Integer(), key=True),
            column("entries", text),
        ),
        adopted=sa.Table(
            "adopted",
            metadata,
            column("route", text, key=True),
            column("place", sa.Integer(), key=True),
            column("ranges", text),
            column("tables", text),
            column("settled", sa.Integer()),
            sa.Column("wanting", text, nullable=False, server_default="[]"),
        ),
        accepted=sa.Table(
            "accepted",
            metadata,
            column("route", text, key=True),
            column("act", text),
            column("number", big),
            column("at", sa.Float()),
        ),
        places=sa.Table("places", metadata, column("route", text, key=True), column("place", text)),
    )
