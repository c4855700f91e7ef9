"""Group commit: what many callers submit becomes one frame and one sync.

While one group is being written the next one gathers: the busier the callers, the larger the groups, and nobody waits
on purpose. A submission is in one frame: it is appended completely or not at all.

A large submission is a frame of its own, prepared in parallel so that it does not delay the others: it may be appended
after later submissions. That is safe, because it was not acknowledged yet.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from itertools import accumulate, chain
from queue import Empty, Queue, SimpleQueue
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.log.format.frame import Body
from penstock.log.writer import PartitionWriter
from penstock.record import ENTRY_SCHEMA, int64_array

_log = logging.getLogger(__name__)

_TIMESTAMP = ENTRY_SCHEMA.field("timestamp").type
ENTRY_OVERHEAD = 128
"""The assumed weight of an entry besides its data."""
LARGE = 2**20
"""From this weight on, a submission is a frame of its own."""
_AT_A_TIME = 4096
"""How many entries are converted to Arrow at once: no other thread of the process runs meanwhile."""


class Entry(NamedTuple):
    """One entry as a caller has it; ``entry_batch`` makes Arrow of many."""

    timestamp_us: int
    namespace: str
    key: str | None
    headers: tuple[tuple[str, str], ...]
    data: bytes
    op: str = "insert"
    mode: str = "sync"


Done = Callable[[range | None, Exception | None], None]
"""Called once, from the commit thread, with the offsets that a submission got, or why it was not taken."""


class _Submission(NamedTuple):
    entries: list[Entry]
    weight: int
    done: Done


class _Group(NamedTuple):
    submissions: list[_Submission]
    weight: int
    body: Body | None


class GroupCommit:
    """``submit`` may be called from any thread and never blocks.

    Three threads: one gathers what was submitted and prepares a frame of it, one does so for large submissions, one
    writes and syncs. So the next group is being compressed while the disk works on the last one.
    """

    def __init__(
        self, writer: PartitionWriter, max_pending_bytes: int = 64 * 2**20, max_group_bytes: int = 8 * 2**20
    ) -> None:
        self._writer = writer
        self._max_pending = max_pending_bytes
        self._max_group = max_group_bytes
        self._submitted: SimpleQueue[_Submission | None] = SimpleQueue()
        self._large: SimpleQueue[_Submission | None] = SimpleQueue()
        # One slot: while a prepared group waits in it, everything new joins the next one.
        self._prepared: Queue[_Group | None] = Queue(maxsize=1)
        self._lock = threading.Lock()
        self._pending = 0
        self._closed = False
        self._threads = [
            threading.Thread(target=work, name=f"{name}-{writer.partition}", daemon=True)
            for name, work in (("gather", self._gather), ("large", self._prepare_large), ("commit", self._commit))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pending_bytes(self) -> int:
        """The bytes that are submitted and not yet settled."""
        return self._pending

    def submit(self, entries: list[Entry], done: Done) -> bool:
        """Submit ``entries``; ``done`` is called with the result. False: too much is waiting, or closed."""
        weight = sum([len(entry.data) for entry in entries]) + ENTRY_OVERHEAD * len(entries)
        with self._lock:
            if self._closed or (self._pending and self._pending + weight > self._max_pending):
                return False
            self._pending += weight
            self._submitted.put(_Submission(entries, weight, done))
        return True

    def close(self) -> None:
        """Commit what was submitted, then stop. The writer stays open."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._submitted.put(None)
        for thread in self._threads:
            thread.join()

    def _gather(self) -> None:
        held: _Submission | None = None
        while True:
            first = held or self._submitted.get()
            held = None
            if first is None:
                break
            if first.weight >= LARGE:
                self._large.put(first)
                continue
            group, weight, stop = [first], first.weight, False
            while weight < self._max_group:
                try:
                    following = self._submitted.get_nowait()
                except Empty:
                    break
                if following is None:
                    stop = True
                    break
                if following.weight >= LARGE or weight + following.weight > self._max_group:
                    held = following
                    break
                group.append(following)
                weight += following.weight
            self._prepare(group)
            if stop:
                break
        self._large.put(None)

    def _prepare_large(self) -> None:
        while (submission := self._large.get()) is not None:
            self._prepare([submission])
        # The gathering thread has prepared everything: it told this one to end.
        self._prepared.put(None)

    def _prepare(self, submissions: list[_Submission]) -> None:
        weight = sum([submission.weight for submission in submissions])
        try:
            batch = entry_batch(list(chain.from_iterable([submission.entries for submission in submissions])))
            body = self._writer.prepare(batch)
        except Exception as error:
            # Whatever it was, somebody waits for the answer; and one bad submission must not fail the others.
            if len(submissions) > 1:
                for submission in submissions:
                    self._prepare([submission])
            else:
                self._settle(submissions, weight, None, error)
            return
        self._prepared.put(_Group(submissions, weight, body))

    def _commit(self) -> None:
        while (group := self._prepared.get()) is not None:
            try:
                taken = self._writer.write(group.body)
            except Exception as error:
                self._settle(group.submissions, group.weight, None, error)
            else:
                self._settle(group.submissions, group.weight, taken, None)

    def _settle(
        self, submissions: list[_Submission], weight: int, taken: range | None, error: Exception | None
    ) -> None:
        first = 0 if taken is None else taken.start
        for submission in submissions:
            count = len(submission.entries)
            _notify(submission, None if taken is None else range(first, first + count), error)
            first += count
        with self._lock:
            self._pending -= weight


def entry_batch(entries: list[Entry]) -> pa.RecordBatch:
    """Many entries as one batch in ``ENTRY_SCHEMA``."""
    if len(entries) > _AT_A_TIME:
        starts = range(0, len(entries), _AT_A_TIME)
        return pa.concat_batches([entry_batch(entries[start : start + _AT_A_TIME]) for start in starts])
    times, namespaces, keys, headers, data, ops, modes = zip(*entries, strict=True) if entries else [()] * 7
    arrays = [
        int64_array(np.array(times, np.int64)).view(_TIMESTAMP),
        _strings(namespaces),
        _strings(ops),
        _strings(modes),
        pa.array(keys, pa.string()),
        _header_maps(headers),
        pa.array(data, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ENTRY_SCHEMA)


def _strings(values: tuple[str, ...]) -> pa.Array:
    if values and values.count(values[0]) == len(values):
        return pa.repeat(values[0], len(values))
    return pa.array(values, pa.string())


def _header_maps(headers: tuple[tuple[tuple[str, str], ...], ...]) -> pa.Array:
    count = len(headers)
    alike = count > 1 and headers.count(headers[0]) == count
    distinct = headers[:1] if alike else headers
    ends = np.fromiter(accumulate(map(len, distinct), initial=0), np.int32, len(distinct) + 1)
    pairs = list(chain.from_iterable(chain.from_iterable(distinct)))
    names, values = pa.array(pairs[::2], pa.string()), pa.array(pairs[1::2], pa.string())
    if alike:
        # Mostly the entries of one client: convert its few strings once and repeat them in Arrow.
        width = int(ends[1])
        again = pa.array(np.tile(np.arange(width, dtype=np.int32), count))
        names, values, ends = names.take(again), values.take(again), np.arange(count + 1, dtype=np.int32) * width
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), names, values)


def _notify(submission: _Submission, taken: range | None, error: Exception | None) -> None:
    try:
        submission.done(taken, error)
    except Exception:
        _log.exception("a caller failed while it was told of its append")
