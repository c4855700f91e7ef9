"""A reader beside a writer in another process: every record whole, in order, none missing, none early."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from penstock.log.local_log import LocalLog
from tests.log.samples import fetched, key_of, number, numbers, seal_holds, segments

_WRITER = """
import sys
from pathlib import Path
from penstock.log.group_commit import Entry, entry_batch
from penstock.log.local_log import LocalLog
from tests.contract.log import config
from tests.log.samples import sealed
with LocalLog(Path(sys.argv[1]), config(segment_bytes=20_000)).writer("web") as writer:
    while writer.next_offset < 3000:
        group = range(writer.next_offset, writer.next_offset + 1 + writer.next_offset % 6)
        writer.append(entry_batch([Entry(n, "ns", None, (), sealed(n)) for n in group]))
"""


def test_a_reader_never_sees_half_a_record_while_another_process_writes_and_retention_removes(tmp_path: Path) -> None:
    LocalLog(tmp_path).writer("web").close()
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", _WRITER, str(tmp_path)]
    writing = subprocess.Popen(command, env={"PYTHONPATH": root})
    log = LocalLog(tmp_path)
    read, removed, ended = 0, 0, False
    while not ended:
        ended = writing.poll() is not None
        end = log.bounds(0).end
        for batch in log.read(0, read, end):
            offsets = batch.column("offset").to_pylist()
            assert offsets == list(range(read, read + len(offsets)))
            for offset, data in zip(offsets, batch.column("data").to_pylist(), strict=True):
                assert seal_holds(data)
                assert data[8:].startswith(b"%d:" % offset)
            read += len(offsets)
        assert read == end
        removed += len(log.apply_retention({0: read}, datetime.now(UTC)))
    assert writing.returncode == 0
    assert read >= 3000
    assert removed > 5


_COMPACTOR = """
import sys
from pathlib import Path
from penstock.log.maintenance.compaction import compact
from penstock.log.local_log import LocalLog
from tests.contract.log import config
from tests.log.samples import repeating
log = LocalLog(Path(sys.argv[1]), config(segment_bytes=5000, fsync="never", retention={"max_age": None}))
with log.writer("web") as writer:
    while writer.next_offset < 2000:
        for _ in range(20):
            writer.append(repeating(range(writer.next_offset, writer.next_offset + 5)))
        compact(log, {0: writer.next_offset})
compact(log, {0: 2000})
"""


def test_a_reader_beside_compaction_meets_every_record_once_and_never_an_error(tmp_path: Path) -> None:
    LocalLog(tmp_path).writer("web").close()
    root = str(Path(__file__).parents[2])
    compacting = subprocess.Popen([sys.executable, "-c", _COMPACTOR, str(tmp_path)], env={"PYTHONPATH": root})
    log = LocalLog(tmp_path)
    reads = 0
    while compacting.poll() is None:
        for start in (0, reads * 37 % 2000):
            seen: list[int] = []
            for batch in log.read(0, start, max_batch_records=10):
                seen += batch.column("offset").to_pylist()
                assert [number(data) for data in batch.column("data").to_pylist()] == seen[-batch.num_rows :]
            assert seen == sorted(set(seen))
            assert sum(map(len, fetched(log, ((0, n) for n in range(0, 2000, 50))))) == 40
            assert log.advance(0, start, max_records=7) >= start
        reads += 1
    assert compacting.returncode == 0
    assert reads > 3
    end = int(segments(log)[-1].stem)
    newest = {key_of(n): n for n in range(2000)}
    assert numbers(log) == [(n, n) for n in range(2000) if n >= end or newest[key_of(n)] == n]
