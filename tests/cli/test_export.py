"""``penstock run --once`` with a destination that does not take everything at the first try."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.cli._support.exit_codes import Exit
from tests.cli.processes import Terminal
from tests.simulators.dataset import TAKE, TOKEN, DatasetServer, Reply, dataset_server

CONFIG = """\
name: logs
sources: {{web: {{type: file, path: ./web.ndjson}}}}
routes:
  export:
    from: web
    to: {{type: dataset, url: "{url}", token: {token}, group_by: [s], retry: {{initial: 100ms, max: 200ms}}}}
"""


def test_a_run_to_the_end_waits_for_what_is_taken_later(tmp_path: Path) -> None:
    busy = Reply(503, b"{}")
    with dataset_server(DatasetServer(decide=lambda session, number: busy if number < 2 else TAKE)) as server:
        (tmp_path / "pipeline.yaml").write_text(CONFIG.format(url=server.url, token=TOKEN))
        events = [json.dumps({"s": f"s{number % 3}", "n": number}) for number in range(9)]
        (tmp_path / "web.ndjson").write_text("\n".join(events) + "\n")
        terminal = Terminal(tmp_path)
        ran = terminal.run_once()
        assert ran.returncode == Exit.OK, ran.stderr
        assert sorted(event["attrs"]["n"] for event in server.events) == list(range(9))
        route = terminal.route("export")
        assert (route["loaded"], route["waiting"], route["counted"]["requests"]) == (9, 0, 3)
