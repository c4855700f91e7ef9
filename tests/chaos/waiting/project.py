"""The pipeline with routes that remember keys and keep records back, beside one that does neither."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import duckdb

from tests.chaos.project import ROUTE, Project

UNIQUE, ORDERS, TIMED = "unique", "orders", "timed"
"""The routes: each key once; each order when it is closed; the same, or after a while."""
HOLDING = (ORDERS, TIMED)

ROUTES = (ROUTE, UNIQUE, ORDERS, TIMED)

_PIPELINE = """\
name: chaos
data_dir: ./data
engine: {{restart_backoff: 100ms, restart_backoff_max: 2s}}
log: {{segment_bytes: 256KiB}}
sources:
  web: {{type: http, listen: "127.0.0.1:{port}", workers: 2, tokens: [{{id: site, client_secret: {secret}}}]}}
routes:
"""
_ROUTE = """\
  <name>:
    from: [web]
    steps: [<step>]
    to: {{type: duckdb, path: ./<name>.duckdb, table: events, mode: stream, every: <every>}}
"""
_GATHER = """{{gather: {{key: [order], until: "status = 'closed'", at_most: <at most>}}}}"""
_STEPS = {
    ROUTE: "",
    UNIQUE: "{{dedupe: {{key: key, window: 3650d}}}}",
    ORDERS: _GATHER.replace("<at most>", "365d"),
    TIMED: _GATHER.replace("<at most>", "15s"),
}
"""Clocks are set by days: neither the window nor the wait for an order may come near to that."""
_BY_ID = ", primary_key: [eventn_ctx_event_id]"


class HoldingProject(Project):
    """``by_id``: rows of what is kept back have the event's id as their primary key, as tables need where checkpoints
    are lost. Without, they are appended, and one that comes twice is seen twice."""

    def __init__(self, folder: Path, faults: str = "", by_id: bool = False, routes: Sequence[str] = ROUTES) -> None:
        self.by_id = by_id
        self._routes = routes
        pipeline = _PIPELINE + "".join(_route(name, by_id and name in HOLDING) for name in routes)
        super().__init__(folder, faults, pipeline=pipeline)

    @property
    def routes(self) -> Sequence[str]:
        return self._routes

    def rows(self) -> dict[str, Counter[str]]:
        """Per route, how often its target has each event. Only while no engine runs."""
        return {route: self._rows(self.folder / f"{route}.duckdb") for route in self.routes}

    def _rows(self, path: Path) -> Counter[str]:
        with duckdb.connect(str(path), read_only=True) as connection:
            return Counter(row[0] for row in connection.execute("SELECT eventn_ctx_event_id FROM events").fetchall())


def _route(name: str, by_id: bool) -> str:
    # The plain one is slow, so that what happens at named points happens to the others.
    every = ("5s" if name == ROUTE else "500ms") + (_BY_ID if by_id else "")
    return _ROUTE.replace("<name>", name).replace("<step>", _STEPS[name]).replace("<every>", every)
