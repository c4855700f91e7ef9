"""A collector with default limits, an honest client, and one attack after the other beside it."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from tests.abuse.attacks import CLIENT_SECRET
from tests.sources.http.server import collector
from tests.sources.http.test_survival import children

RSS_LIMIT_MIB = 768
"""What the README promises: the resident memory of a worker, whatever is sent to it."""
FLOOR_MS = 25.0
"""A p99 below this is as good as any other: the machine's own noise is not less."""
MAX_RATIO = 3.0
HEALTH_MS = 100.0
"""How long the collector may take to say that it lives."""
PAUSE_SECONDS = 0.01


@dataclass
class Seen:
    """What the honest client saw."""

    milliseconds: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    bad: Counter[str] = field(default_factory=Counter)

    @property
    def p99(self) -> float:
        ordered = sorted(self.milliseconds)
        return ordered[int(len(ordered) * 0.99)] if ordered else float("nan")


@dataclass(frozen=True)
class Row:
    """One attack beside the honest client."""

    attack: str
    alone: Seen
    attacked: Seen
    rss_mib: float
    statuses: dict[str, int]

    @property
    def ratio(self) -> float:
        return max(self.attacked.p99, FLOOR_MS) / max(self.alone.p99, FLOOR_MS)

    @property
    def harmless(self) -> bool:
        """Nobody else was refused, and memory stayed within what is promised."""
        return not self.attacked.bad and self.rss_mib <= RSS_LIMIT_MIB

    def line(self) -> str:
        cells = [
            self.attack,
            str(len(self.attacked.milliseconds)),
            str(sum(self.attacked.bad.values())),
            f"{self.alone.p99:.0f}",
            f"{self.attacked.p99:.0f}",
            f"{self.ratio:.1f}",
            f"{max(self.attacked.milliseconds, default=float('nan')):.0f}",
            f"{max(self.attacked.health, default=float('nan')):.0f}",
            f"{self.rss_mib:.0f}",
            " ".join(f"{status}:{count}" for status, count in sorted(self.statuses.items())),
        ]
        return "| " + " | ".join(cells) + " |"


TITLE = (
    "| attack | answered | refused | p99 alone, ms | p99, ms | ratio | longest, ms | /healthz longest, ms"
    " | worker's peak, MiB | what the attackers got |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"
)


def abuse(
    folder: Path, names: Iterable[str], seconds: float, between: float, say: Callable[[str], None] = print
) -> list[Row]:
    """Each attack for so long, and the honest client alone for a while before the first and after each."""
    rows: list[Row] = []
    with collector(folder, workers=2) as web:
        workers = children(web.pid)
        alone = _honest(web.port, seconds)
        for name in names:
            for worker in workers:
                forget_peak(worker)
            with _Attackers(name, web.port, seconds) as attackers:
                attacked = _honest(web.port, seconds)
                statuses = attackers.outcome()
            rows.append(Row(name, alone, attacked, max(map(peak_mib, workers)), statuses))
            say(rows[-1].line())
            if children(web.pid) != workers:
                raise AssertionError(f"{name}: a worker died")
            alone = _honest(web.port, between)
    return rows


class _Attackers:
    """The attackers' process: begun when entered, over when left."""

    def __init__(self, name: str, port: int, seconds: float) -> None:
        command = [sys.executable, "-m", "tests.abuse.attacks", name, str(port), str(seconds)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> _Attackers:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "begun\n"
        return self

    def outcome(self) -> dict[str, int]:
        output, _ = self._process.communicate(timeout=180)
        found: dict[str, int] = json.loads(output)
        return found

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _honest(port: int, seconds: float) -> Seen:
    """An event at a time, some on new connections; and somebody else who asks for the collector's health."""
    seen = Seen()
    ending = Event()
    watcher = Thread(target=_watch_health, args=(port, seen, ending), daemon=True)
    watcher.start()
    until = time.monotonic() + seconds
    for number, client in enumerate(_clients(port)):
        if time.monotonic() > until:
            break
        began = time.monotonic()
        headers = {"X-Auth-Token": CLIENT_SECRET}
        try:
            client.request("POST", "/api/v1/event", json.dumps({"honest": number, "pad": "x" * 400}), headers)
            answer = client.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as error:
            seen.bad[type(error).__name__] += 1
            client.close()
            continue
        if answer.status != 200:
            seen.bad[str(answer.status)] += 1
        seen.milliseconds.append(1000 * (time.monotonic() - began))
        time.sleep(PAUSE_SECONDS)
    ending.set()
    watcher.join()
    return seen


def _clients(port: int) -> Iterator[http.client.HTTPConnection]:
    """By turns: two connections that stay, and a new one."""
    kept = [http.client.HTTPConnection("127.0.0.1", port, timeout=30) for _ in range(2)]
    while True:
        yield from kept
        fresh = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        yield fresh
        fresh.close()


def _watch_health(port: int, seen: Seen, ending: Event) -> None:
    while not ending.wait(0.05):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        began = time.monotonic()
        with suppress(OSError, http.client.HTTPException):
            client.request("GET", "/healthz")
            if client.getresponse().status == 200:
                seen.health.append(1000 * (time.monotonic() - began))
                continue
        seen.bad["healthz"] += 1
        client.close()


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
