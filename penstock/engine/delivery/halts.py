"""Stops a route until an operator has decided. The ledger keeps why, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.engine import events
from penstock.engine.delivery import refusals
from penstock.engine.delivery.batch_pieces import Ranges
from penstock.engine.delivery.batch_writer import Stopped
from penstock.engine.ledger import Halt, Ledger, RouteState
from penstock.errors import ContradictionError
from penstock.log.local_log import LocalLog


class Halted(Stopped):
    """The route has stopped before a record and waits for an operator. The ledger says why; this is not an error."""


def halt_before(ledger: Ledger, route: str, halt: Halt) -> Halted:
    place = f"offset {halt.offset} of partition {halt.partition}"
    where = f"{halt.offset} --partition {halt.partition}"
    message = (
        f"stopped before {place}: {halt.step}: {_sentence(halt.message)}"
        f" Fix it, then: penstock offset resume {route}."
        f" Or go on without the record: penstock offset ack {route} {where}"
    )
    return _halt_at(ledger, route, halt, message)


def halt_after(ledger: Ledger, route: str, log: LocalLog, failed: Sequence[pa.RecordBatch], ranges: Ranges) -> Halted:
    """For a batch of which a part was written before a record was refused: it could not be undone."""
    halt = refusals.first_failure(failed, log, ranges)
    count = sum(batch.num_rows for batch in failed)
    message = (
        f"stopped after a batch that was delivered without {count} of its records, which are in the failed store;"
        f" the first is offset {halt.offset} of partition {halt.partition}: {halt.step}: {_sentence(halt.message)}"
        f" Look at them: penstock failed list --route {route}."
        f" Then: penstock offset resume {route}"
    )
    return _halt_at(ledger, route, halt, message)


def halt_over(ledger: Ledger, route: str, error: ContradictionError) -> Halted:
    """For a route that has found what contradicts its ledger."""
    message = str(error)
    ledger.set_state(route, RouteState.HALTED, message)
    events.route_halted(route, message)
    return Halted(message)


def _halt_at(ledger: Ledger, route: str, halt: Halt, message: str) -> Halted:
    ledger.halt(route, halt, message)
    events.route_halted(route, message)
    return Halted(message)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
