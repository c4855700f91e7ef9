"""A record that kills its worker, or never lets it go, on a pipeline that runs: it fails alone, all others arrive."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.cli._support.exit_codes import Exit
from tests.cli.processes import Terminal
from tests.engine.deadly import record, write_steps

CONFIG = """\
name: shop
sources:
  web: {type: file, path: ./web.ndjson}
routes:
  arrow:
    from: web
    step_timeout: 5s
    steps: [python: {file: steps.py, function: treat}]
    to: {type: file, path: ./arrow}
  unique:
    from: web
    step_timeout: 5s
    steps: [{where: "n <> 11"}, {dedupe: {key: n, window: 1h}}, {python: {file: steps.py, function: treat}}]
    to: {type: file, path: ./unique}
  early:
    from: web
    step_timeout: 5s
    steps: [{where: "n <> 11"}, {python: {file: steps.py, function: treat}}, {dedupe: {key: n, window: 1h}}]
    to: {type: file, path: ./early}
  healthy: {from: web, to: {type: file, path: ./healthy}}
"""
DEEDS = {5: "kill", 11: "hang"}


def delivered(folder: Path) -> list[int]:
    lines = [line for file in folder.glob("*.ndjson") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["n"] for line in lines)


def failed(terminal: Terminal, route: str) -> list[tuple[int, str, str]]:
    lines = terminal.penstock("failed", "list", "--route", route, "--json").stdout.splitlines()
    return sorted((entry["record"]["offset"], entry["step"], entry["code"]) for entry in map(json.loads, lines))


def test_deadly_records_fail_alone_and_everything_else_arrives_once(tmp_path: Path) -> None:
    write_steps(tmp_path)
    (tmp_path / "pipeline.yaml").write_text(CONFIG)
    (tmp_path / "web.ndjson").write_bytes(b"".join(record(n, DEEDS.get(n, "")) + b"\n" for n in range(16)))
    terminal = Terminal(tmp_path)
    # A record that hangs is given its time over and over before it is said to.
    ran = terminal.run_once()
    assert ran.returncode == Exit.OK, ran.stderr
    good = [n for n in range(16) if n not in DEEDS]
    assert delivered(tmp_path / "healthy") == list(range(16))
    assert delivered(tmp_path / "arrow") == good
    assert delivered(tmp_path / "unique") == delivered(tmp_path / "early") == good
    assert failed(terminal, "arrow") == [(5, "python", "killed_worker"), (11, "python", "timed_out")]
    assert failed(terminal, "unique") == failed(terminal, "early") == [(5, "python", "killed_worker")]
    said = ran.stderr.splitlines()
    assert any("offset 5 of partition 0 fails" in line and "step 'python'" in line for line in said)
    assert [line for line in said if "\tat " in line or "Traceback" in line or "Py4J" in line] == []
