"""A fleet of hubs that report their state to the pipeline, and a comparison of the tables with what they say.

    python hubs.py send [HUBS [ROUNDS]]   all hubs report, round after round (300, 20)
    python hubs.py lose HUB               a hub reports everything, and one of its bundles is lost on the way
    python hubs.py restart HUB            a hub is started anew, and reports everything
    python hubs.py compare [SECONDS]      compares the tables with the hubs; exits with 1 if they still differ then (60)

What hubs do is decided by their names, so every run is the same. ``data/hubs.json`` has the newest state of each.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psycopg

PORT = int(os.environ.get("FLEET_PORT", "8001"))
SECRET = os.environ.get("FLEET_SECRET", "fleet")
POSTGRES = os.environ.get("FLEET_URL")
"""Where the tables are; if it is not set, in the DuckDB file."""
NEWEST = Path("data/hubs.json")
POLICIES = ("backups", "encryption", "network")
EVERYTHING_EVERY = 5
"""Rounds. In those between, a hub reports only what has changed."""
RESTARTS = 0.02
"""The share of hubs that are started anew in a round."""
LATE = 0.05
"""The share of bundles that come a round late, after newer ones."""
MOST_BUNDLES = 500
"""In one request."""
PATIENCE = 60.0
"""Seconds for which a request is sent again, until it is answered."""

Bundle = dict[str, Any]
Row = dict[str, Any]


@dataclass
class Hub:
    """Has clusters, and policies that apply to some of them."""

    name: str
    incarnation: int = 0
    """How often it was started anew."""
    beat: int = 0
    generations: dict[str, int] = field(default_factory=dict)
    """How many bundles of each kind it has sent since it was started."""
    clusters: dict[str, int] = field(default_factory=dict)
    """How many nodes each has."""
    compliance: dict[str, dict[str, bool]] = field(default_factory=dict)
    """By policy, of each cluster that it applies to."""

    def restart(self) -> None:
        """Forget everything, but that this is another start."""
        self.incarnation += 1
        self.beat = 0
        self.generations, self.clusters, self.compliance = {}, {}, {}

    def report(self, everything: bool = False) -> list[Bundle]:
        """What it sends in a round."""
        self.beat += 1
        chance = random.Random(f"{self.name} {self.incarnation} {self.beat}")
        heartbeat = self._bundle("heartbeats", self.rows("heartbeats"))
        if everything or self.beat % EVERYTHING_EVERY == 1:
            self._look_around(chance)
            return [heartbeat, *self._everything()]
        policy = chance.choice(POLICIES)
        changed = chance.choice(list(self.compliance[policy]))
        self.compliance[policy][changed] = not self.compliance[policy][changed]
        row = {"policy": policy, "cluster": changed, "compliant": self.compliance[policy][changed]}
        return [heartbeat, self._bundle("compliance_changes", [row], base=self._version("compliance"))]

    def rows(self, table: str) -> list[Row]:
        """What a table should have of this hub."""
        pairs = [(policy, cluster) for policy, clusters in self.compliance.items() for cluster in clusters]
        match table:
            case "heartbeats":
                return [{"agent": "hub", "beat": self.beat}]
            case "clusters":
                return [{"id": name, "nodes": nodes} for name, nodes in self.clusters.items()]
            case "clusters_per_policy":
                return [{"policy": policy, "cluster": cluster} for policy, cluster in pairs]
            case "compliance":
                return [{"policy": p, "cluster": c, "compliant": self.compliance[p][c]} for p, c in pairs]
        raise ValueError(table)

    def _look_around(self, chance: random.Random) -> None:
        """Clusters come and go, and policies apply to others."""
        names = [f"cluster-{number}" for number in chance.sample(range(1, 10), chance.randint(2, 6))]
        self.clusters = {name: chance.randint(1, 50) for name in names}
        self.compliance = {
            policy: {name: chance.random() < 0.8 for name in chance.sample(names, chance.randint(1, len(names)))}
            for policy in POLICIES
        }

    def _everything(self) -> Iterator[Bundle]:
        yield self._bundle("clusters", self.rows("clusters"))
        yield self._bundle("clusters_per_policy", self.rows("clusters_per_policy"))
        depends_on = self._version("clusters_per_policy")
        yield self._bundle("compliance", self.rows("compliance"), depends_on=depends_on)

    def _bundle(self, kind: str, items: list[Row], **versions: str) -> Bundle:
        self.generations[kind] = self.generations.get(kind, 0) + 1
        return {"source": self.name, "kind": kind, "version": self._version(kind), **versions, "data": {"items": items}}

    def _version(self, kind: str) -> str:
        return f"{self.incarnation}.{self.generations[kind]}"


def send_rounds(hubs: Sequence[Hub], rounds: int) -> str:
    chance = random.Random(f"{len(hubs)} hubs")
    late: list[Bundle] = []
    sent = restarts = 0
    for _ in range(rounds):
        now, late = late, []
        for hub in hubs:
            if hub.beat and chance.random() < RESTARTS:
                hub.restart()
                restarts += 1
            for bundle in hub.report():
                # Changes come in their order: one that came after a newer one would be taken for known.
                is_late = chance.random() < LATE and bundle["kind"] != "compliance_changes"
                (late if is_late else now).append(bundle)
        chance.shuffle(now)
        sent += post(now)
    sent += post(late)
    return f"sent {sent} bundles of {len(hubs)} hubs, which were started anew {restarts} times"


def lose(hub: Hub) -> str:
    """Without the clusters per policy, what depends on them has to wait."""
    bundles = [bundle for bundle in hub.report(everything=True) if bundle["kind"] != "clusters_per_policy"]
    return f"sent {post([*bundles, *hub.report()])} bundles of {hub.name}; one was lost"


def restart(hub: Hub) -> str:
    hub.restart()
    return f"{hub.name} was started anew and sent {post(hub.report())} bundles"


def post(bundles: Sequence[Bundle]) -> int:
    """Send them; each request when the one before is answered, which says that its bundles are on disk."""
    for start in range(0, len(bundles), MOST_BUNDLES):
        body = json.dumps(bundles[start : start + MOST_BUNDLES])
        deadline = time.monotonic() + PATIENCE
        while (problem := post_once(body)) is not None:
            if time.monotonic() > deadline:
                sys.exit(f"the pipeline does not take the bundles: {problem}")
            time.sleep(0.5)
    return len(bundles)


def post_once(body: str) -> str | None:
    """Returns what was wrong; then it may be sent again, also if it had arrived: a version counts once."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    try:
        connection.request("POST", "/api/v1/bundles", body, {"X-Auth-Token": SECRET})
        answer = connection.getresponse()
        told = answer.read().decode()
    except OSError as error:
        return str(error)
    finally:
        connection.close()
    return None if answer.status == 200 and "malformed" not in told else told


def compare(hubs: Sequence[Hub], patience: float) -> int:
    if not hubs:
        sys.exit("the hubs have sent nothing yet")
    deadline = time.monotonic() + patience
    ask = ask_postgres if POSTGRES else ask_duckdb
    while True:
        lines, equal = differences(hubs, ask)
        if equal or time.monotonic() > deadline:
            print("\n".join(lines))
            return 0 if equal else 1
        time.sleep(0.5)


Ask = Callable[[str, Sequence[str]], list[tuple[Any, ...]]]


def differences(hubs: Sequence[Hub], ask: Ask) -> tuple[list[str], bool]:
    """A line per table, and whether all tables have what the hubs say, and nothing else."""
    lines = []
    equal = True
    for table in ("clusters", "clusters_per_policy", "compliance", "heartbeats"):
        columns = ["source", *hubs[0].rows(table)[0]]
        said = sorted((hub.name, *row.values()) for hub in hubs for row in hub.rows(table))
        try:
            there = sorted(ask(table, columns))
        except (duckdb.Error, psycopg.Error) as error:
            return [f"{table}: {error}"], False
        wrong = sorted({row[0] for row in set(said) ^ set(there)})
        told = f"differs for {', '.join(wrong[:5])}" if wrong else "as the hubs say"
        lines.append(f"{table:<20}{len(there):>6} rows, {told}")
        equal = equal and said == there
    return lines, equal


def ask_postgres(table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    with psycopg.connect(POSTGRES or "") as connection:
        return connection.execute(f"SELECT {', '.join(columns)} FROM fleet.{table}".encode()).fetchall()


def ask_duckdb(table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    with duckdb.connect("data/fleet.duckdb", read_only=True) as connection:
        return connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()


def load() -> dict[str, Hub]:
    if not NEWEST.exists():
        return {}
    return {facts["name"]: Hub(**facts) for facts in json.loads(NEWEST.read_text())}


def save(hubs: Iterable[Hub]) -> None:
    NEWEST.parent.mkdir(exist_ok=True)
    NEWEST.write_text(json.dumps([asdict(hub) for hub in hubs]))


def main(verb: str, *words: str) -> int:
    hubs = load()
    match verb:
        case "send":
            count, rounds = [int(word) for word in words] + [300, 20][len(words) :]
            names = [f"hub-{number:03}" for number in range(1, count + 1)]
            hubs = {name: hubs.get(name, Hub(name)) for name in names} | hubs
            print(send_rounds([hubs[name] for name in names], rounds))
        case "lose" | "restart":
            (name,) = words
            print((lose if verb == "lose" else restart)(hubs[name]))
        case "compare":
            return compare([*hubs.values()], float(words[0]) if words else PATIENCE)
        case _:
            sys.exit(__doc__)
    save(hubs.values())
    return 0


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["help"])))
