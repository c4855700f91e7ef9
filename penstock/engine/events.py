"""Named internal events: one call makes both the log line and the metric, so that they cannot drift apart."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from prometheus_client import Counter, Gauge, Histogram, start_http_server

from penstock.conflation.tally import (
    COMPARED,
    CONFLATED,
    DELETED,
    FAILED,
    INSERTED,
    RECEIVED,
    UPDATED,
    WRITTEN,
    Tally,
    longest_of,
)
from penstock.destinations.contract import GROUP_SEPARATOR, OF_ALL
from penstock.engine.delivery.batch_pieces import Ranges
from penstock.errors import RouteError
from penstock.sampling.decision_names import CountedDecision

log = logging.getLogger("penstock")

_BATCHES = Counter("penstock_batches_total", "Batches committed.", ["route"])
_ITEMS = Counter("penstock_items_total", "Items by what became of them.", ["route", "outcome"])
_SECONDS = Histogram("penstock_batch_seconds", "From the start of a batch's tasks to the ledger's commit.", ["route"])
_RETRIES = Counter("penstock_destination_retries_total", "Writes that were put off.", ["route"])
_CRASHES = Counter(
    "penstock_route_crashes_total", "Queries that ended with an error and were started again.", ["route"]
)
_HALTS = Counter("penstock_route_halts_total", "Records at which a route stopped (`on_error: stop`).", ["route"])
_OVERFLOWED = Counter(
    "penstock_tables_overflowed_total", "Tables of batches whose rows went beyond `max_tables`.", ["route"]
)
_LOST = Counter("penstock_workers_lost_total", "Processes that records ended, or that took too long.", ["route"])
_WAITING = Gauge("penstock_waiting_rows", "Rows of committed batches that wait for their table.", ["route", "table"])
_HOLD_LIMITED = Counter(
    "penstock_hold_limit_releases_total", "Times that `max_hold_bytes` made the oldest waiting things go on.", ["route"]
)
_STEP_COUNTS = Counter(
    "penstock_step_events_total", "What the step that holds back has counted, by its own names.", ["route", "name"]
)
_DECISIONS = Counter(
    "penstock_sampling_decisions_total",
    "Traces that a policy has decided, each time it was asked, by its answer.",
    ["route", "policy", "decision", "decision_from"],
)
_STEP_LEVELS = Gauge("penstock_step_level", "How much that step has of what, by its own names.", ["route", "name"])
_FAILING = Gauge("penstock_failing_keys", "Keys (sessions) that a destination does not take at the moment.", ["route"])
_TARGET_COUNTS = Counter(
    "penstock_target_events_total",
    "What a destination counts besides rows, by its own names: requests, bytes charged, events trimmed.",
    ["route", "name"],
)
_BUNDLES = Counter("penstock_bundles_total", "Bundles of state by what became of them.", ["route", "kind", "outcome"])
_STATE_ROWS = Counter(
    "penstock_state_rows_total", "Rows of state that were compared and changed.", ["route", "kind", "change"]
)
_DELAYS = Histogram(
    "penstock_bundle_delay_seconds", "From the receipt of a bundle to its commit in the database.", ["route", "kind"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600),
)  # fmt: skip
_RUNNING = Gauge("penstock_route_running", "1 while the route's query runs.", ["route"])
_BEAT = Gauge("penstock_engine_heartbeat_timestamp_seconds", "When engine and JVM last gave a sign of life.")
_STILL = Gauge("penstock_route_still_seconds", "How long the tasks of its batch have not moved.", ["route"])
_RELEASED = Counter("penstock_log_released_bytes_total", "Bytes of log that retention removed.")
_COMPACTED = Counter("penstock_log_compacted_bytes_total", "Bytes of log that compaction freed.")


def serve_metrics(host: str, port: int) -> None:
    """Serve the metrics of this process to Prometheus, in a separate thread."""
    try:
        start_http_server(port, host)
    except OSError as error:
        raise RouteError(
            "PEN-ENG-021", f"cannot serve metrics on {host}:{port}: {error.strerror}.", "Change `engine.metrics`."
        ) from error


def batch_committed(
    route: str, number: int, loaded: int, skipped: int, failed: int, waiting: int, seconds: float
) -> None:
    _BATCHES.labels(route).inc()
    released = max(0, -waiting)
    counts = {"loaded": loaded, "skipped": skipped, "failed": failed, "waiting": max(0, waiting), "released": released}
    for outcome, items in counts.items():
        _ITEMS.labels(route, outcome).inc(items)
    late = f", {waiting} waiting" if waiting > 0 else f", {released} of them had waited" if released else ""
    _SECONDS.labels(route).observe(seconds)
    log.info(
        "route %s: batch %d committed: %d loaded, %d skipped, %d failed%s in %.3f s",
        route, number, loaded, skipped, failed, late, seconds,
    )  # fmt: skip


def step_counted(route: str, counts: Mapping[str, int], levels: Mapping[str, int]) -> None:
    """What a holding step has counted in a batch, and how much it has of what."""
    for name, count in counts.items():
        decision = CountedDecision.named(name)
        if decision is None:
            _STEP_COUNTS.labels(route, name).inc(count)
        else:
            _DECISIONS.labels(route, *decision).inc(count)
    for name, level in levels.items():
        _STEP_LEVELS.labels(route, name).set(level)


def target_counted(route: str, tallies: Mapping[str, Mapping[str, int]]) -> None:
    """What a destination has counted: of all that it does, or of state, by source and kind. The metrics are by kind:
    sources may be many."""
    for name, count in tallies.get(OF_ALL, {}).items():
        _TARGET_COUNTS.labels(route, name).inc(count)
    kinds: dict[str, list[Tally]] = {}
    for group, counts in tallies.items():
        if group == OF_ALL:
            continue
        kinds.setdefault(group.partition(GROUP_SEPARATOR)[2], []).append(Tally.of(counts))
    for kind, found in kinds.items():
        _count_bundles(route, kind, Tally.sum(found))


def _count_bundles(route: str, kind: str, tally: Tally) -> None:
    for outcome in (RECEIVED, CONFLATED, WRITTEN, FAILED):
        if tally[outcome]:
            _BUNDLES.labels(route, kind, outcome).inc(tally[outcome])
    for change in (COMPARED, INSERTED, UPDATED, DELETED):
        if tally[change]:
            _STATE_ROWS.labels(route, kind, change.removeprefix("rows_")).inc(tally[change])
    for step, bundles in tally.delays.items():
        for _ in range(bundles):
            _DELAYS.labels(route, kind).observe(longest_of(step))


def keys_failing(route: str, keys: int) -> None:
    _FAILING.labels(route).set(keys)


def failing_not_told(route: str, reason: str) -> None:
    log.warning("route %s: what its destination fails to deliver could not be told to sources: %s", route, reason)


def batch_known(route: str) -> None:
    log.info("route %s: Spark asked for a batch that was delivered before; not written again", route)


def destination_unavailable(route: str, reason: str, wait: float) -> None:
    _RETRIES.labels(route).inc()
    log.warning("route %s: %s Trying again in %.1f s.", route, reason, wait)


def table_deferred(route: str, number: int, table: str, reason: str) -> None:
    log.warning(
        "route %s: table %s does not take its part of batch %d now; it waits, and the route goes on: %s",
        route, table, number, reason,
    )  # fmt: skip


def table_still_unavailable(route: str, table: str, rows: int, reason: str, wait: float) -> None:
    _RETRIES.labels(route).inc()
    log.warning(
        "route %s: %d rows wait for table %s: %s Trying again in %.1f s.", route, rows, table, reason, wait
    )  # fmt: skip


def table_caught_up(route: str, number: int, table: str, loaded: int, failed: int) -> None:
    for outcome, items in (("loaded", loaded), ("failed", failed)):
        _ITEMS.labels(route, outcome).inc(items)
    log.info(
        "route %s: table %s has got its part of batch %d: %d loaded, %d failed", route, table, number, loaded, failed
    )  # fmt: skip


def items_retried(route: str, number: int, loaded: int, skipped: int, failed: int, waiting: int) -> None:
    for outcome, items in (("loaded", loaded), ("skipped", skipped), ("failed", failed)):
        _ITEMS.labels(route, outcome).inc(items)
    log.info(
        "route %s: retry %d of what waited: %d loaded, %d skipped, %d failed, %d still wait",
        route, number, loaded, skipped, failed, waiting,
    )  # fmt: skip


def items_superseded(route: str, items: Mapping[str, int]) -> None:
    """``items``: how many that waited at the destination are not needed any more, by the reason."""
    for reason, count in items.items():
        _ITEMS.labels(route, "skipped").inc(count)
        log.info("route %s: %d items that waited are skipped as %s", route, count, reason)


def retry_not_taken(route: str, items: int, reason: str, wait: float) -> None:
    log.warning("route %s: %d items still wait: %s. Trying again in %.1f s.", route, items, reason, wait)


def rows_waiting(route: str, tables: Mapping[str, int]) -> None:
    """``tables``: how many rows each table waits for, 0 for one that waits no more."""
    for table, rows in tables.items():
        _WAITING.labels(route, table).set(rows)


def control_failed(route: str, reason: str) -> None:
    log.warning("route %s: what waits in its step may wait longer, trying again: %s", route, reason)


def release_written(route: str) -> None:
    log.info("route %s: told its step to let go of what waits; it goes on with one of the next batches", route)


def hold_limited(route: str, size: int, limit: int) -> None:
    _HOLD_LIMITED.labels(route).inc()
    log.warning(
        "route %s: the log keeps %d bytes for what waits in its step, more than `max_hold_bytes` (%d); the oldest of it"
        " waits no longer: the step's own rule says what becomes of it", route, size, limit,
    )  # fmt: skip


def state_lost(route: str, waiting: int, back_to: Mapping[int, int]) -> None:
    places = ", ".join(f"offset {offset} of partition {partition}" for partition, offset in sorted(back_to.items()))
    log.warning(
        "route %s: the state of its step is gone, and %d records waited in it; it goes back to %s, and delivers again"
        " what it had delivered from there on", route, waiting, places,
    )  # fmt: skip


def target_behind(route: str, back_to: Mapping[int, int]) -> None:
    places = ", ".join(f"offset {offset} of partition {partition}" for partition, offset in sorted(back_to.items()))
    log.warning(
        "route %s: its target needs records that were delivered before; the route goes back to %s, and delivers again"
        " from there on", route, places,
    )  # fmt: skip


def target_went_back(route: str, reason: str) -> None:
    log.warning("route %s: %s", route, reason)


def target_lacks_records(route: str, gone: Ranges) -> None:
    log.error(
        "route %s: its target needs %s, and the log no longer has them: put the missing segments back and start again,"
        " or let their senders send them again", route, describe_ranges(gone),
    )  # fmt: skip


def batch_given_up(route: str, number: int) -> None:
    log.warning(
        "route %s: batch %d was under way; what of it is at the destination is delivered again",
        route, number,
    )  # fmt: skip


def state_empty(route: str, step: str) -> None:
    log.warning("route %s: its checkpoint is new: step '%s' knows nothing of the records before", route, step)


def retry_failed(route: str, reason: str) -> None:
    log.error("route %s: waiting rows cannot be retried now: %s", route, reason)


def acks_changed(route: str, number: int) -> None:
    log.info("route %s: batch %d is tried without the records that were acknowledged meanwhile", route, number)


def batch_cut(route: str, number: int, reason: str) -> None:
    log.info("route %s: batch %d was refused as a whole; its halves are tried next: %s", route, number, reason)


def batch_set_aside(route: str, number: int) -> None:
    log.info(
        "route %s: what batch %d releases is processed in pieces, because a worker was lost over it", route, number
    )


def worker_lost(route: str, ranges: Ranges, reason: str) -> None:
    _LOST.labels(route).inc()
    log.warning(
        "route %s: lost a worker on %s: %s. It is processed again, isolated.", route, describe_ranges(ranges), reason
    )


def lost_range_split(route: str, ranges: Ranges, reason: str) -> None:
    _LOST.labels(route).inc()
    log.warning("route %s: %s is split in two: %s", route, describe_ranges(ranges), reason)


def deadly_record_failed(route: str, ranges: Ranges, reason: str) -> None:
    _LOST.labels(route).inc()
    log.error("route %s: %s fails, because each time it ran alone %s", route, describe_ranges(ranges), reason)


def describe_ranges(ranges: Ranges) -> str:
    """The ranges in words: the first and last offset of each partition."""
    return ", ".join(
        f"offset {start} of partition {partition}"
        if end - start == 1
        else f"offsets {start}..{end - 1} of partition {partition}"
        for partition, (start, end) in sorted(ranges.items())
    )


def record_refused(route: str, number: int, behind: int, reason: str) -> None:
    """``behind``: how many offsets of Spark's batch come after it."""
    log.warning(
        "route %s: batch %d, a single record, was refused and goes to the failed store (%d offsets to go): %s",
        route, number, behind, reason,
    )  # fmt: skip


_overflow_warned: set[str] = set()


def table_made_again(route: str, table: str) -> None:
    log.warning(
        "route %s: table '%s', which had rows, was not there any more. It was made again, without the rows that were"
        " delivered before. To deliver what the log still has of them: penstock offset rewind %s --to 1970-01-01",
        route, table, route,
    )  # fmt: skip


def tables_overflow(route: str, limit: int, into: str, tables: Sequence[str]) -> None:
    """Logged once per route and process: whoever makes up names makes up many."""
    _OVERFLOWED.labels(route).inc(len(tables))
    if route in _overflow_warned:
        return
    _overflow_warned.add(route)
    log.warning(
        "route %s: it has as many tables as `max_tables` allows (%d). Rows for further tables go to table '%s', which"
        " names the table they were meant for; the first is '%s'. Raise `max_tables`, or list the tables in `tables`.",
        route, limit, into, tables[0],
    )  # fmt: skip


def route_started(route: str) -> None:
    _RUNNING.labels(route).set(1)
    log.info("route %s: started", route)


def route_stopped(route: str) -> None:
    _RUNNING.labels(route).set(0)
    log.info("route %s: stopped", route)


def route_left(route: str, lag: int, waiting: int, held: int) -> None:
    also = [f"{held} that wait in its steps"] if held else []
    also += [f"{waiting} rows that its tables wait for"] if waiting else []
    log.warning(
        "route %s: not in the config; retention keeps %d records that it has not read%s. If it was renamed:"
        " penstock offset adopt %s NEW. If it is not to come back: penstock offset drop %s",
        route, lag, "".join(f", and {each}" for each in also), route, route,
    )  # fmt: skip


def route_crashed(route: str, reason: str, wait: float) -> None:
    _RUNNING.labels(route).set(0)
    _CRASHES.labels(route).inc()
    log.error("route %s: %s Starting again in %.1f s.", route, reason, wait)


def route_halted(route: str, message: str) -> None:
    _RUNNING.labels(route).set(0)
    _HALTS.labels(route).inc()
    log.error("route %s: %s", route, message)


def route_resumed(route: str) -> None:
    log.info("route %s: goes on", route)


def route_gave_up(route: str, reason: str, crashes: int) -> None:
    _RUNNING.labels(route).set(0)
    _CRASHES.labels(route).inc()
    log.error("route %s: gave up%s: %s", route, f" after {crashes} crashes" if crashes else "", reason)


def route_out_of_patience(route: str, reason: str) -> None:
    _RUNNING.labels(route).set(0)
    log.error("route %s: waits no longer: %s", route, reason)


def batch_left_for_next_start(route: str, number: int) -> None:
    log.info("route %s: stopped before batch %d was delivered; the next run delivers it", route, number)


def ledger_unavailable(route: str, reason: str) -> None:
    log.error("route %s: the ledger is unavailable: %s", route, reason)


def lock_not_renewed(name: str, reason: str) -> None:
    log.warning("the lock on '%s' was not renewed, trying again: %s", name, reason)


def log_released(segments: int, size: int) -> None:
    _RELEASED.inc(size)
    log.info("retention: %d segments, %d bytes removed", segments, size)


def retention_failed(reason: str) -> None:
    log.error("retention: nothing was removed: %s", reason)


def log_compacted(partition: int, dropped: int, size: int) -> None:
    _COMPACTED.inc(max(0, size))
    log.info("compaction: %d records of partition %d dropped, %d bytes freed", dropped, partition, size)


def compaction_failed(partition: int, reason: str) -> None:
    log.error("compaction: partition %d stays as it is: %s", partition, reason)


def exited_early() -> None:
    log.info("stopped: there is nothing to deliver")


def heartbeat_written(still: Mapping[str, float]) -> None:
    """``still``: per route with a current batch, the seconds for which that has made no progress."""
    _BEAT.set_to_current_time()
    for route, seconds in still.items():
        _STILL.labels(route).set(seconds)


def heartbeat_failed(reason: str) -> None:
    log.warning("the engine could not write its heartbeat: %s", reason)


def process_silent(name: str, pid: int, seconds: float) -> None:
    log.error("%s (pid %d) has given no sign of life for %.0f s; it is killed and restarted", name, pid, seconds)


def process_continued(name: str, pid: int, seconds: float) -> None:
    log.warning("%s (pid %d) was stopped by a signal for %.0f s; it is resumed (SIGCONT)", name, pid, seconds)


def job_stalled(route: str, seconds: float) -> None:
    log.error("route %s: a task has made no progress for %.0f s; its job is cancelled", route, seconds)


def process_started(name: str, pid: int) -> None:
    log.info("%s: started, pid %d", name, pid)


def waiting_for_spark(slowly: bool) -> None:
    why = " without an archive of its classes, which takes longer: penstock doctor says how to make it"
    log.info("engine: waiting for Spark to start%s", why if slowly else "")


def spark_started(seconds: float) -> None:
    log.info("engine: Spark started, after %.1f s", seconds)


def waiting_for_sources() -> None:
    log.info("engine: waiting for the sources to end")


def process_ended(name: str, code: int | None, wait: float | None) -> None:
    if wait is None:
        log.info("%s: ended with %s", name, code)
    else:
        log.error("%s: ended with %s. Starting again in %.1f s.", name, code, wait)
