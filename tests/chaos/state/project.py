"""The pipeline from HTTP to a database that keeps state, and a look at its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psycopg

from penstock.conflation.version import Version
from tests.chaos.project import Project
from tests.chaos.state.hub import CLUSTERS, COMPLIANCE, POLICIES, Row
from tests.support.postgres import Server

STATE = "state"
COLUMNS = {CLUSTERS: (1, "id, v"), POLICIES: (1, "id, v"), COMPLIANCE: (2, "policy, cluster, v, needs, base")}
"""Of each table how many columns are the key, without the source, and all of them."""

_PIPELINE = """\
name: chaos
data_dir: ./data
engine: {{restart_backoff: 100ms, restart_backoff_max: 2s}}
sources:
  hubs: {{type: http, listen: "127.0.0.1:{port}", workers: <http workers>, tokens: [{{id: hubs, server_secret: {secret}}}]}}
routes:
  state:
    from: [hubs]
    to:
      type: state
      url: "<url>"
      workers: <workers>
      every: 250ms
      kinds:
        - {{name: clusters, priority: 0, table: clusters, rows: /items, key: [id]}}
        - {{name: policies, priority: 1, table: policies, rows: /items, key: [id]}}
        - {{name: compliance, priority: 2, table: compliance, rows: /items, key: [policy, cluster], depends_on: policies}}
        - {{name: changes, priority: 3, sync: delta, table: compliance, rows: /items, key: [policy, cluster],
           depends_on: compliance}}
"""  # noqa: E501


class StateProject(Project):
    """``http_workers``: each has a partition of the log, so with several the bundles of a source come over several."""

    def __init__(self, folder: Path, server: Server, faults: str = "", workers: int = 4, http_workers: int = 2) -> None:
        self.server = server
        text = _PIPELINE.replace("<url>", server.url).replace("<workers>", str(workers))
        super().__init__(folder, faults, pipeline=text.replace("<http workers>", str(http_workers)))

    @property
    def routes(self) -> Sequence[str]:
        return (STATE,)

    def rows(self) -> dict[str, Counter[str]]:
        """A row is no event: there is nothing to count."""
        return {}

    def tables(self) -> dict[str, dict[str, dict[Row, Row]]]:
        """By table and source the rows, by their key."""
        found: dict[str, dict[str, dict[Row, Row]]] = {table: {} for table in COLUMNS}
        with psycopg.connect(self.server.url) as connection:
            for table, (keys, columns) in COLUMNS.items():
                for source, *values in connection.execute(f"SELECT source, {columns} FROM {table}".encode()):
                    found[table].setdefault(source, {})[tuple(values[:keys])] = tuple(values[keys:])
        return found

    def versions(self) -> dict[tuple[str, str], Version]:
        with psycopg.connect(self.server.url) as connection:
            query = "SELECT source, kind, incarnation, generation FROM penstock_versions"
            return {(source, kind): Version(*version) for source, kind, *version in connection.execute(query)}

    def memory(self) -> dict[str, float]:
        """Resident MiB by role, of all processes of the pipeline."""
        found: Counter[str] = Counter()
        for process in self.victims():
            role = self.role(process)
            if role != "gone" and process.is_running():
                found[role] += process.memory_info().rss // 2**10
        return {role: kib / 2**10 for role, kib in found.items()}
