"""The ledger's tables. What the accounting promises is a constraint here, not only code above it."""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa

LEDGER_VERSION = 1


class Tables:
    def __init__(self, schema: str | None) -> None:
        """``schema`` keeps pipelines apart that share one PostgreSQL; SQLite has a file per pipeline instead."""
        self.metadata = sa.MetaData(schema=schema)
        text, integer, big, real = sa.Text(), sa.Integer(), sa.BigInteger(), sa.Float()

        def table(name: str, *parts: list[sa.Column[Any]] | sa.CheckConstraint) -> sa.Table:
            items = (item for part in parts for item in (part if isinstance(part, list) else [part]))
            return sa.Table(name, self.metadata, *items)

        self.about = table("about", _key(key=text), _values(value=text))
        self.partitions = table("partitions", _key(partition=integer), _values(identity=text))
        self.offsets = table(
            "offsets",
            _key(route=text, partition=integer),
            _values(committed=big, hold=big),
            sa.CheckConstraint("hold <= committed", name="hold_is_not_ahead"),
        )
        self.batches = table(
            "batches",
            _key(route=text, number=big),
            _values(ranges=text, began_at=real),
            _set_at_commit(committed_at=real, items=big, added=big, loaded=big),
            _set_at_commit(skipped=big, failed=big, waiting=big, seconds=real),
            [sa.Column("digest", text, nullable=True)],
        )
        self.deliveries = table(
            "deliveries",
            _key(route=text, number=big, target=text),
            _values(rows=big, status=text),
            [sa.Column("merged", big, nullable=False, server_default="0")],
            [sa.Column("marked", integer, nullable=False, server_default="0")],
        )
        self.progress = table("progress", _key(route=text, number=big, name=text), _values(state=text))
        self.table_totals = table("table_totals", _key(route=text, target=text), _values(rows=big, merged=big))
        self.skips = table("skips", _key(route=text, step=text), _values(items=big))
        self.step_counts = table("step_counts", _key(route=text, name=text), _values(value=big))
        self.step_levels = table("step_levels", _key(route=text, name=text), _values(value=big))
        self.step_settings = table("step_settings", _key(route=text, name=text), _values(command=text, data=text))
        self.tallies = table("tallies", _key(route=text, subject=text), _values(counts=text))
        self.additions = table("additions", _key(route=text, step=text), _values(items=big))
        self.totals = table(
            "totals",
            _key(route=text),
            _values(items=big, added=big, loaded=big, skipped=big, failed=big, waiting=big),
            _values(failed_entries=big, failed_bytes=big),
            sa.CheckConstraint("items + added = loaded + skipped + failed + waiting", name="everything_accounted"),
            sa.CheckConstraint("waiting >= 0", name="nothing_is_released_twice"),
        )
        self.states = table("states", _key(route=text), _values(state=text, since=real, message=text))
        self.halts = table(
            "halts",
            _key(route=text),
            _values(partition=integer, offset=big, step=text, code=text, message=text, at=real),
        )
        self.acknowledged = table(
            "acknowledged",
            _key(route=text, partition=integer, first=big),
            _values(end=big),
            sa.CheckConstraint('"first" < "end"', name="something_is_acknowledged"),
        )
        self.interventions = table(
            "interventions",
            _numbered(),
            _values(at=real, route=text, act=text, who=text, reason=text, partition=integer, first=big, end=big),
        )
        self.courses = table(
            "courses",
            _key(route=text),
            _values(generation=integer, last_number=big),
            [sa.Column("marked", big, nullable=False, server_default="0")],
        )
        self.replays = table("replays", _key(route=text), _values(partition=integer, offset=big, entries=text))
        self.settled = table("settled", _key(route=text, entry=big), _values(action=text, at=real))
        self.replay_doubts = table("replay_doubts", _key(route=text, partition=integer), _values(end=big))
        self.waiting = table(
            "waiting",
            _key(route=text, number=big, target=text),
            _values(delivered_as=text, ranges=text, passed_over=text, acknowledged=text),
            _values(rows=big, since=real, attempts=integer, reason=text),
            sa.CheckConstraint("rows > 0", name="something_waits"),
        )
        self.waiting_offsets = table(
            "waiting_offsets",
            _key(route=text, number=big, target=text, partition=integer),
            _values(first=big, end=big),
        )
        self.postponed = table(
            "postponed",
            _numbered(),
            _values(route=text, group=text, rows=big, places=sa.LargeBinary()),
            _values(delay=real, since=real, attempts=integer, reason=text),
            _set_at_commit(tried_as=big, digest=text, due_at=real, queued_as=big),
            [sa.Column("about", text, nullable=False, server_default="")],
            sa.CheckConstraint("rows > 0", name="something_is_postponed"),
        )
        self.postponed_offsets = table("postponed_offsets", _key(number=integer, partition=integer), _values(first=big))
        self.releases = table("releases", _numbered(), _values(route=text, up_to=big))
        self.commands = table("commands", _numbered(), _values(route=text, name=text, data=text))
        self.held = table("held", _key(route=text, partition=integer), _values(first=big))
        self.columns = table("columns", _key(route=text, target=text, name=text), _values(paths=text, since=real))
        self.changes = table("changes", _numbered(), _values(at=real, route=text, target=text, statement=text))
        self.shapes = table("shapes", _key(route=text, target=text), _values(shape=text, last_change=integer))
        self.locks = table("locks", _key(name=text), _values(holder=text, until=real))
        self.lineages = table("lineages", _key(route=text, partition=integer), _values(entries=text))
        self.adopted = table(
            "adopted",
            _key(route=text, place=integer),
            _values(ranges=text, tables=text, settled=integer),
            [sa.Column("wanting", text, nullable=False, server_default="[]")],
        )
        self.accepted = table("accepted", _key(route=text), _values(act=text, number=big, at=real))
        self.places = table("places", _key(route=text), _values(place=text))


tables = cache(Tables)
"""Built once per process: that takes milliseconds."""


@cache
def create_statements(schema: str | None, dialect: str) -> dict[str, str]:
    """How each table is created."""
    spelled = sa.make_url(f"{dialect}://").get_dialect()()
    created = tables(schema).metadata.tables.values()
    return {table.name: str(sa.schema.CreateTable(table).compile(dialect=spelled)) for table in created}


def _key(**kinds: sa.types.TypeEngine[Any]) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, primary_key=True, autoincrement=False) for name, kind in kinds.items()]


def _values(**kinds: sa.types.TypeEngine[Any]) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name, kind in kinds.items()]


def _set_at_commit(**kinds: sa.types.TypeEngine[Any]) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind) for name, kind in kinds.items()]


def _numbered() -> list[sa.Column[Any]]:
    return [sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True)]
