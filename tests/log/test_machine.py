"""The log beside a plain list: whatever is done to both, they hold the same."""

from __future__ import annotations

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.log.local_log import LocalLog
from penstock.log.maintenance.compaction import compact
from penstock.log.maintenance.verify import verify
from penstock.log.reader import StoredSpan
from penstock.log.writer import PartitionWriter
from tests.contract.log import config
from tests.log.samples import START, fetched, key_of, numbers, repeating

offsets = st.integers(0, 400)


class LogBesideAList(RuleBasedStateMachine):
    """``kept`` maps offset to number: all that the log must still hold."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.directory = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        self.kept: dict[int, int] = {}
        self.next = 0
        self.log, self.writer = self._open()

    def _open(self) -> tuple[LocalLog, PartitionWriter]:
        options = config(segment_bytes=6000, retention={"max_age": "1s"})
        log = LocalLog(self.directory, options)
        return log, log.writer("web")

    @rule(count=st.integers(1, 30), size=st.sampled_from([0, 10, 400]))
    def append(self, count: int, size: int) -> None:
        taken = self.writer.append(repeating(range(self.next, self.next + count), size))
        assert taken == range(self.next, self.next + count)
        self.kept.update((n, n) for n in taken)
        self.next += count

    @rule(gaps=st.lists(st.integers(0, 4), min_size=1, max_size=10))
    def append_with_offsets_of_its_own(self, gaps: list[int]) -> None:
        offsets = self.next - 1 + np.cumsum(np.array(gaps) + 1)
        self.writer.append_at(repeating(offsets.tolist(), 20), offsets)
        self.kept.update((n, n) for n in offsets.tolist())
        self.next = int(offsets[-1]) + 1

    @rule(torn=st.binary(min_size=1, max_size=200))
    def tear(self, torn: bytes) -> None:
        """A write that stopped somewhere: bytes behind the last frame that are none."""
        self.writer.close()
        last = max((self.directory / "0").glob("*.seg"))
        with last.open("ab") as file:
            file.write(torn)
        self.log, self.writer = self._open()
        assert self.writer.recovered is not None
        assert self.writer.recovered.bytes_cut == len(torn)

    @rule()
    def reopen(self) -> None:
        self.writer.close()
        self.log, self.writer = self._open()
        assert self.writer.recovered is None
        assert self.writer.next_offset == self.next

    @rule(ahead=st.integers(0, 20))
    def reopen_behind_a_hold(self, ahead: int) -> None:
        self.log.holds.set("route", {0: self.next + ahead})
        self.writer.close()
        self.log, self.writer = self._open()
        self.next += ahead
        assert self.writer.next_offset == self.next

    @rule(start=offsets, length=offsets)
    def read(self, start: int, length: int) -> None:
        expected = [(o, n) for o, n in self.kept.items() if start <= o < start + length]
        assert numbers(self.log, 0, start, start + length) == expected

    @rule(start=offsets, limit=st.integers(1, 100))
    def advance(self, start: int, limit: int) -> None:
        end = self.log.advance(0, start, max_records=limit)
        waiting = [o for o in self.kept if o >= start]
        assert len([o for o in waiting if o < end]) == min(limit, len(waiting))

    @rule(start=offsets, limit=st.integers(1, 5000), records=st.integers(1, 50))
    def advance_by_bytes(self, start: int, limit: int, records: int) -> None:
        end = self.log.advance(0, start, records, limit)
        waiting = [o for o in self.kept if o >= start]
        taken = [o for o in waiting if o < end]
        assert len(taken) <= records
        assert bool(taken) == bool(waiting)

    @rule(start=offsets, length=offsets, pieces=st.integers(1, 6))
    def split(self, start: int, length: int, pieces: int) -> None:
        stretches = self.log.reader(0).split(start, start + length, pieces)
        assert len(stretches) <= pieces
        assert [o for s, e in stretches for o in range(s, e)] == list(range(start, start + length))

    @rule(wanted=st.lists(offsets, max_size=20))
    def fetch(self, wanted: list[int]) -> None:
        there, missing = fetched(self.log, ((0, offset) for offset in wanted))
        assert there == sorted(set(wanted) & self.kept.keys())
        assert missing == sorted(set(wanted) - self.kept.keys())

    @rule(seconds=offsets)
    def offset_at(self, seconds: int) -> None:
        later = [o for o, n in self.kept.items() if n >= seconds]
        assert self.log.offset_at(0, START + timedelta(seconds=seconds)) == (later[0] if later else self.next)

    @rule(floor=offsets)
    def retain(self, floor: int) -> None:
        for removed in self.log.apply_retention({0: floor}, START + timedelta(days=1)):
            assert removed.end <= floor
            for offset in [o for o in self.kept if removed.base <= o < removed.end]:
                del self.kept[offset]

    @rule(floor=offsets)
    def compact(self, floor: int) -> None:
        bases = [int(path.stem) for path in (self.directory / "0").glob("*.seg")]
        end = max((base for base in bases if base <= floor), default=0)
        newest = {key_of(n): o for o, n in self.kept.items()}
        left = {o: n for o, n in self.kept.items() if o >= end or newest[key_of(n)] == o}
        [done] = compact(self.log, {0: floor})
        assert done.dropped == len(self.kept) - len(left)
        self.kept = left

    @rule()
    def verify(self) -> None:
        [check] = verify(self.log)
        assert check.is_whole
        assert check.records == len(self.kept)

    @invariant()
    def holds_the_same(self) -> None:
        bounds = self.log.bounds(0)
        assert bounds.end == self.next
        assert self.log.usage()[0].records == len(self.kept)
        assert bounds.oldest <= min(self.kept, default=self.next)
        assert self.log.reader(0).stored_span() == StoredSpan(
            min(self.kept, default=None), max(self.kept, default=None)
        )

    def teardown(self) -> None:
        self.writer.close()
        assert numbers(LocalLog(self.directory)) == list(self.kept.items())
        shutil.rmtree(self.directory)


TestLogBesideAList = LogBesideAList.TestCase
TestLogBesideAList.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
