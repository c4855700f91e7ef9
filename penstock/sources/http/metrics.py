"""Counters of one worker, and the page that adds up those of all workers.

A request costs a few integer additions. Twice a second a worker saves its counters to its own file; the page is the sum
of the files, served by the process that supervises the workers, at an address of its own: who may send events need not
see how many others do. A replaced worker continues the counters of its predecessor, so counters only grow while the
collector runs.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path

import orjson
from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

LATENCY_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

_log = logging.getLogger("penstock.http")


@dataclass(slots=True)
class Tally:
    """The counters of one worker since the collector started."""

    requests: dict[tuple[str, int], int] = field(default_factory=dict)
    """By endpoint and status."""
    events: int = 0
    malformed: int = 0
    bytes: int = 0
    commits: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS) + 1))
    """Submissions by how long the log took, one count per bucket of ``LATENCY_BOUNDS`` and one for the rest."""
    commit_seconds: float = 0.0
    pending_bytes: int = 0

    def count_request(self, endpoint: str, status: int) -> None:
        key = (endpoint, status)
        self.requests[key] = self.requests.get(key, 0) + 1

    def count_commit(self, seconds: float) -> None:
        self.commits[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.commit_seconds += seconds

    def save(self, path: Path) -> None:
        requests = [[endpoint, status, count] for (endpoint, status), count in self.requests.items()]
        document = {**asdict(self), "requests": requests}
        draft = path.with_suffix(".draft")
        draft.write_bytes(orjson.dumps(document))
        draft.replace(path)

    def try_save(self, path: Path, failing: bool = False) -> bool:
        """Whether it was saved; a full disk must not cost more than that. Logged when it is no longer as before."""
        try:
            self.save(path)
        except OSError as error:
            if not failing:
                _log.warning("the metrics cannot be saved: %s", error)
            return False
        if failing:
            _log.warning("the metrics are saved again")
        return True

    @classmethod
    def load(cls, path: Path) -> Tally:
        """What ``save`` wrote; an empty tally if it never did."""
        try:
            document = orjson.loads(path.read_bytes())
        except FileNotFoundError:
            return cls()
        requests = {(endpoint, status): count for endpoint, status, count in document.pop("requests")}
        return cls(requests=requests, **document)


def serve_metrics(source: str, directory: Path, host: str, port: int) -> Callable[[], None]:
    """Serve the metrics of a source, all its workers together, in a thread. Returns a function that stops it. Raises
    ``OSError`` if the address cannot be used."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(source, directory))
    server, thread = start_http_server(port, host, registry)

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end


class _Page:
    """The tallies of all workers in the form that prometheus_client prints."""

    def __init__(self, source: str, directory: Path) -> None:
        self._source = source
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        by_worker = {path.stem: Tally.load(path) for path in sorted(self._directory.glob("*.json"))}
        tallies = by_worker.values()
        requests = CounterMetricFamily(
            "penstock_collector_requests", "Requests answered.", labels=["source", "endpoint", "status"]
        )
        answered = sum((Counter(t.requests) for t in tallies), Counter[tuple[str, int]]())
        for (endpoint, status), count in sorted(answered.items()):
            requests.add_metric([self._source, endpoint, str(status)], count)
        yield requests
        for name, text, total in (
            ("events", "Events taken.", sum(t.events for t in tallies)),
            (
                "malformed",
                "Bulk lines that were no events, bundles that were no good, spans with wrong ids.",
                sum(t.malformed for t in tallies),
            ),
            ("bytes", "Bytes of event data put into the log.", sum(t.bytes for t in tallies)),
        ):
            counter = CounterMetricFamily(f"penstock_collector_{name}", text, labels=["source"])
            counter.add_metric([self._source], total)
            yield counter
        commits = HistogramMetricFamily(
            "penstock_collector_commit_seconds", "Time from submission to durable.", labels=["source"]
        )
        commits.add_metric([self._source], _buckets(tallies), sum(t.commit_seconds for t in tallies))
        yield commits
        pending = GaugeMetricFamily(
            "penstock_collector_pending_bytes", "Bytes held until they are on disk.", labels=["source", "worker"]
        )
        for worker, tally in by_worker.items():
            pending.add_metric([self._source, worker], tally.pending_bytes)
        yield pending


def _buckets(tallies: Iterable[Tally]) -> list[tuple[str, float]]:
    """Cumulative, as the format wants them."""
    # The empty one is for the time before any worker has saved its counters.
    columns = zip(*(tally.commits for tally in (Tally(), *tallies)), strict=True)
    below = accumulate(float(sum(column)) for column in columns)
    return list(zip([*map(str, LATENCY_BOUNDS), "+Inf"], below, strict=True))
