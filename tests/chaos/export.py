"""Kills the engine while it exports to an API that fails in every way, and counts every event at both ends.

``python -m tests.chaos.export --events 10000 --sessions 200 --kills 3``
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from penstock.testing.waiting import HANG, eventually
from tests.simulators.dataset import TAKE, TOKEN, DatasetServer, Reply, dataset_server
from tests.support.ports import free_port

PIPELINE = """\
name: export
sources:
  web: {{type: http, listen: '{address}', tokens: [{{id: apps, server_secret: secret}}]}}
routes:
  export:
    from: [web]
    to:
      type: dataset
      url: {url}
      token: {token}
      group_by: [s]
      max_lifetime: 1s
      patience: 500ms
      timeout: 3s
      retry: {{initial: 200ms, max: 1s}}
"""
IN_ONE_REQUEST = 250
LARGE = 100
"""One in so many events is large, so that its request is under way for a while, and can be cut in the middle."""
DYING = 1.0
"""Seconds until the connections of a process that was killed are closed, at most."""
PENSTOCK = (sys.executable, "-m", "penstock.cli.main")


@dataclass
class Result:
    wrong: list[str] = field(default_factory=list)
    """Promises that were broken."""
    events: int = 0
    again: int = 0
    """Events that came more than once."""
    lost_answers: int = 0
    cut_bodies: int = 0


@dataclass
class Apps:
    """They send numbered events, and repeat what gets no 200."""

    address: str
    sent: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _next: int = 0

    def send(self, sessions: Sequence[str]) -> bool:
        rows = [event(session, self._next + place) for place, session in enumerate(sessions)]
        request = urllib.request.Request(
            f"http://{self.address}/api/v1/s2s/event",
            json.dumps(rows).encode(),
            {"X-Auth-Token": "secret", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                is_taken = bool(answer.status == 200)
        except OSError:
            return False
        if is_taken:
            self._next += len(rows)
            for place, session in enumerate(sessions):
                self.sent[session].append(self._next - len(rows) + place)
        return is_taken


def event(session: str, number: int) -> dict[str, object]:
    large = {"text": random.Random(number).randbytes(20_000).hex()} if number % LARGE == 0 else {}
    return {"s": session, "n": number, **large}


def misbehave(session: str, number: int) -> Reply:
    """One in ten requests goes wrong, the same ones whenever the session is the same."""
    roll = zlib.crc32(f"{session}/{number}".encode()) % 40
    faults = {1: Reply(503, b"{}"), 2: Reply(lose=True), 3: Reply(reset=True), 4: Reply(delay=0.8)}
    return faults.get(roll, Reply(delay=0.005) if roll % 2 else TAKE)


def export_under_kills(folder: Path, events: int, sessions: int, kills: int, away: float = 0.0) -> Result:
    """A quarter of the sessions is away from the second part on until all events are sent, and ``away`` seconds at
    least. One in twenty requests is cut in the middle of its body."""
    apps = Apps(f"127.0.0.1:{free_port()}")
    killed: list[float] = []
    away_since = 0.0
    with dataset_server(DatasetServer(decide=misbehave, cut=lambda number: number % 20 == 7)) as server:
        config = PIPELINE.format(address=apps.address, url=server.url, token=TOKEN)
        (folder / "pipeline.yaml").write_text(config)
        with _running(folder) as running:
            eventually(partial(apps.send, ["s0"]), "it takes events")
            eventually(lambda: bool(server.accepted), "the first event arrives")
            for part in range(kills):
                if part == 1 or kills == 1:
                    server.set_away(0)
                    away_since = time.monotonic()
                seen = len(server.accepted)
                share = range(part * events // kills, (part + 1) * events // kills)
                for start in range(share.start, share.stop, IN_ONE_REQUEST):
                    stop = min(start + IN_ONE_REQUEST, share.stop)
                    batch = [f"s{number % sessions}" for number in range(start, stop)]
                    eventually(partial(apps.send, batch), "it takes events")
                eventually(partial(_has_more, server, seen + sessions // 4), "some arrive")
                _kill_engine(running)
                killed.append(time.monotonic())
            eventually(
                lambda: time.monotonic() - away_since >= away, "it was away for long enough", seconds=away + HANG
            )
            server.set_away()
            eventually(partial(_has_all, server, apps), "all arrive")
            eventually(lambda: _status(folder)["waiting"] == 0, "nothing waits")
        return _judge(server, apps, killed, _status(folder))


def _judge(server: DatasetServer, apps: Apps, killed: Sequence[float], status: Mapping[str, Any]) -> Result:
    found = Result(events=sum(map(len, apps.sent.values())), lost_answers=server.lost.total())
    found.again = len(server.events) - found.events
    if server.overlaps:
        found.wrong.append(f"two requests at a time of {sorted(set(server.overlaps))}")
    if server.complaints:
        found.wrong.append(f"the server objects: {server.complaints[0]}")
    for session, numbers in _arrived(server).items():
        if list(dict.fromkeys(numbers)) != apps.sent[session]:
            found.wrong.append(f"{session} is not in its order")
    ids = {(event["attrs"]["penstock.id"], event["attrs"]["n"]) for event in server.events}
    if len(ids) != found.events:
        found.wrong.append(f"{found.events} events have {len(ids)} delivery ids")
    if not status["adds_up"] or (status["in"], status["loaded"]) != (found.events, found.events):
        found.wrong.append(f"the books say {status}")
    found.wrong += _needless(server, killed)
    found.cut_bodies = server.cuts
    return found


def _needless(server: DatasetServer, killed: Sequence[float]) -> list[str]:
    """Requests that were sent again though their answer was not lost, and they were not the last of their session
    before a kill."""
    by_session = defaultdict(list)
    for each in server.accepted:
        by_session[each.session].append(each)
    wrong = []
    for session, requests in by_session.items():
        first: dict[int, int] = {}
        for place, request in enumerate(requests):
            for event in request.events:
                earlier = first.setdefault(event["attrs"]["n"], place)
                if earlier == place or requests[earlier].is_lost:
                    continue
                taken, following = requests[earlier].at, requests[earlier + 1].at
                if not any(taken <= kill + DYING and kill <= following for kill in killed):
                    ages = [f"{following - taken:.3f} s", *(f"{kill - taken:.3f} s" for kill in killed)]
                    wrong.append(f"event {event['attrs']['n']} of {session} came again without need: {', '.join(ages)}")
    return wrong


def _arrived(server: DatasetServer) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for each in list(server.accepted):
        found[each.info["s"]].extend(event["attrs"]["n"] for event in each.events)
    return found


def _has_more(server: DatasetServer, than: int) -> bool:
    return len(server.accepted) > than


def _has_all(server: DatasetServer, apps: Apps) -> bool:
    arrived = {session: set(numbers) for session, numbers in _arrived(server).items()}
    return arrived == {session: set(numbers) for session, numbers in apps.sent.items()}


def _status(folder: Path) -> dict[str, Any]:
    shown = subprocess.run([*PENSTOCK, "status", "--json"], cwd=folder, capture_output=True, timeout=HANG, check=True)
    found: dict[str, Any] = json.loads(shown.stdout)["routes"][0]
    return found


@contextmanager
def _running(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "stderr").open("w") as log:
        running = subprocess.Popen([*PENSTOCK, "run"], cwd=folder, stdout=log, stderr=log)
    try:
        yield running
        running.send_signal(signal.SIGTERM)
        assert running.wait(HANG) == 0, (folder / "stderr").read_text()
    finally:
        running.kill()
        running.wait()


def _kill_engine(supervisor: subprocess.Popen[bytes]) -> None:
    children = psutil.Process(supervisor.pid).children()
    engines = [child for child in children if "engine" in " ".join([child.name(), *child.cmdline()])]
    assert engines, [child.cmdline() for child in children]
    for engine in engines:
        os.kill(engine.pid, signal.SIGKILL)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--away", type=float, default=120.0, help="seconds for which a quarter of the sessions is away")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-export-") as folder:
        result = export_under_kills(Path(folder), options.events, options.sessions, options.kills, options.away)
    print(
        f"{result.events} events over {options.sessions} sessions, {options.kills} kills, {result.lost_answers} answers"
        f" lost, {result.cut_bodies} bodies cut, a quarter away for {options.away:g} s: {result.again} arrived again"
    )
    if not result.wrong:
        print("all arrived, in order, and never two requests of a session at a time")
    for wrong in result.wrong:
        print(f"BROKEN: {wrong}")
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(_main())
