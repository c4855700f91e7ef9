"""Tells a route's holding step what is asked of it, and to let go when too much of the log is kept for what waits."""

from __future__ import annotations

from collections.abc import Mapping

from penstock import faults
from penstock.engine import events
from penstock.engine.ledger import Ledger, Operator, Position
from penstock.engine.route_plan import RoutePlan
from penstock.engine.route_sources import control_source
from penstock.engine.stateful.control import ControlWriter
from penstock.engine.stateful.control_records import released_rows
from penstock.engine.stateful.hold_limit import held_bytes, release_point, up_to
from penstock.log.local_log import LocalLog

KEPT_SHARE = 0.8
"""How much of ``max_hold_bytes`` may stay when it is exceeded: with all of it, every batch would exceed it anew."""


class Releases:
    """For one route, by the engine that runs it."""

    def __init__(self, log: LocalLog, ledger: Ledger, plan: RoutePlan, writer: ControlWriter) -> None:
        self._log = log
        self._ledger = ledger
        self._route = plan.name
        self._limit = plan.max_hold_bytes
        self._writer = writer
        self._unread: int | None = None
        """The offset of a release that was not read when it was last looked for."""

    def release_due(self) -> None:
        """Write the releases and commands that are due. It is safe to call it again after a crash at any moment."""
        self._pass_on_commands()
        self._carry_out()
        if self._limit is not None and self._ask_if_too_much(self._limit):
            self._carry_out()

    def _pass_on_commands(self) -> None:
        """A crash before one is noted as done says it twice: commands are such that this changes nothing."""
        for asked in self._ledger.commands(self._route):
            self._writer.command(asked.name, asked.data.encode())
            faults.reach("control.command_appended")
            self._ledger.finish_command(self._route, asked.number)

    def _carry_out(self) -> None:
        """Make one control record of all requests. A crash before they are noted as done makes another one, which finds
        nothing left to release."""
        asked = self._ledger.release_requests(self._route)
        if not asked:
            return
        self._writer.release(max(request.up_to for request in asked))
        faults.reach("control.release_appended")
        self._ledger.finish_release_requests(self._route, asked[-1].number)
        events.release_written(self._route)

    def _ask_if_too_much(self, limit: int) -> bool:
        holding = self._ledger.holding(self._route)
        held = holding.ranges
        size = held_bytes(self._log, held)
        # What is to go on goes on with the batch that has the release. Until then nothing is gained by another one.
        if size <= limit or self._is_under_way(holding.positions):
            return False
        point = release_point(self._log, held, int(limit * KEPT_SHARE))
        reason = f"max_hold_bytes: the log kept {size} bytes for what waits, and the limit is {limit}"
        self._ledger.request_release(self._route, point, Operator("penstock", reason), up_to(self._log, held, point))
        events.hold_limited(self._route, size, limit)
        return True

    def _is_under_way(self, positions: Mapping[int, Position]) -> bool:
        """Whether the log has a release that the route has not read."""
        for partition in self._log.partitions([control_source(self._route)]):
            committed = positions[partition].committed if partition in positions else 0
            if self._unread is None or self._unread < committed:
                self._unread = self._find_release(partition, committed)
        return self._unread is not None

    def _find_release(self, partition: int, start: int) -> int | None:
        for batch in self._log.read(partition, start):
            for row in released_rows(batch):
                return int(batch.column("offset")[row].as_py())
        return None
