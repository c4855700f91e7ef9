"""The demo's pipeline: one collector, one route with steps, an embedded warehouse."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

SECRET = "demo"
MARKER = ".penstock-demo"
"""A file that says: this folder was made by the demo and may be removed by it."""

_PIPELINE = """\
name: demo
data_dir: ./data
sources:
  web:
    type: http
    listen: 127.0.0.1:{port}
    tokens: [{{id: site, client_secret: "{secret}"}}]
routes:
  warehouse:
    from: [web]
    steps:
      - where: "event_type <> 'heartbeat'"
      - map:
          fields:
            - {{src: /session, action: remove}}
            - {{src: /user/country, dst: /country}}
            - {{src: /price, action: cast, type: "numeric(12,2)"}}
    to: {{type: duckdb, path: ./warehouse.duckdb, table: events, mode: stream}}
"""


@dataclass(frozen=True)
class DemoProject:
    folder: Path
    port: int

    @property
    def config(self) -> Path:
        return self.folder / "pipeline.yaml"

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse.duckdb"


def write_project(folder: Path) -> DemoProject:
    """Write the demo's config into an empty folder, with a port that is free."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    project = DemoProject(folder, port)
    (folder / MARKER).touch()
    project.config.write_text(_PIPELINE.format(port=port, secret=SECRET))
    return project
