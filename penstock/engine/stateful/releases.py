"""Makes control records of what is asked of a route's holding step."""

from __future__ import annotations

from penstock import faults
from penstock.engine import events
from penstock.engine.ledger import Ledger
from penstock.engine.stateful.control import ControlWriter


class Releases:
    """What is asked of one route, carried out by the engine that runs it."""

    def __init__(self, ledger: Ledger, route: str, writer: ControlWriter) -> None:
        self._ledger = ledger
        self._route = route
        self._writer = writer

    def carry_out(self) -> None:
        """Make one control record of all requests. A crash before they are noted as done makes another one, which finds
        nothing left to release."""
        asked = self._ledger.release_requests(self._route)
        if not asked:
            return
        self._writer.release(max(request.up_to for request in asked))
        faults.reach("control.release_appended")
        self._ledger.finish_release_requests(self._route, asked[-1].number)
        events.release_asked(self._route)
