"""The failed store in the ledger: how much of its files counts, and which entries an operator has settled."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import sqlalchemy as sa

from penstock.engine.ledger.accounts import Extent
from penstock.engine.ledger.database import Database


class FailedEntries(Database):
    def failed_extent(self, route: str) -> Extent:
        with self.reading() as connection:
            return self._failed_extent(connection, route)

    def settled_entries(self, route: str) -> dict[int, str]:
        """Failed entries that an operator replayed or dropped, and which of the two."""
        return {row.entry: row.action for row in self.rows(sa.select(self._t.settled).filter_by(route=route))}

    def replay_doubts(self, route: str) -> dict[int, int]:
        """Per partition, the offset before which failed records may be at the destination: it has replayed records that
        the log lacks since an older copy was put back."""
        return {row.partition: row.end for row in self.rows(sa.select(self._t.replay_doubts).filter_by(route=route))}

    def _failed_extent(self, connection: sa.Connection, route: str) -> Extent:
        row = connection.execute(sa.select(self._t.totals).filter_by(route=route)).first()
        return Extent() if row is None else Extent(row.failed_entries, row.failed_bytes)

    def _failed_open(self, connection: sa.Connection, route: str) -> int:
        """How many failed entries nobody has replayed or dropped."""
        query = sa.select(sa.func.count()).select_from(self._t.settled).filter_by(route=route)
        return self._failed_extent(connection, route).entries - connection.execute(query).scalar_one()

    def settle_entries(self, route: str, entries: Sequence[int], action: str) -> None:
        with self.writing() as connection:
            self._settle(connection, route, entries, action)

    def begin_replay(self, route: str, partition: int, offset: int, entries: Sequence[int]) -> None:
        """Note which entries are about to be appended to the log, and where."""
        with self.writing() as connection:
            connection.execute(
                sa.insert(self._t.replays).values(
                    route=route, partition=partition, offset=offset, entries=json.dumps(list(entries))
                )
            )

    def replay_under_way(self, route: str) -> tuple[int, int, list[int]] | None:
        """Partition, offset and entries of an unfinished replay."""
        with self.reading() as connection:
            row = connection.execute(sa.select(self._t.replays).filter_by(route=route)).first()
        return None if row is None else (row.partition, row.offset, json.loads(row.entries))

    def finish_replay(self, route: str, appended: bool) -> None:
        """End the replay under way: its entries are settled if the log has them, and open again if not."""
        under_way = self.replay_under_way(route)
        if under_way is None:
            return
        with self.writing() as connection:
            if appended:
                self._settle(connection, route, under_way[2], "replayed")
            connection.execute(sa.delete(self._t.replays).filter_by(route=route))

    def _settle(self, connection: sa.Connection, route: str, entries: Sequence[int], action: str) -> None:
        connection.execute(
            sa.insert(self._t.settled),
            [{"route": route, "entry": entry, "action": action, "at": time.time()} for entry in entries],
        )
