"""Opening a log of ten million records in a fresh process: for reading, for writing, and with its index lost."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

from bench.measure import Comparison, Contender, Figure, Goal, Role, Setting, by_turns, ours, seconds_of
from bench.records import as_batch, texts
from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog

FRAME = 1000
RECORD_BYTES = 220
DISTINCT = 20_000
GOAL_SECONDS = 1.0

_IMPORTS = "import time; from pathlib import Path; from penstock.log.local_log import LocalLog"
_READ = """
log = LocalLog(Path({folder!r}))
end = log.bounds(0).end
last = list(log.read(0, end - 1))[-1]
assert last.column("offset")[0].as_py() == end - 1 == {records} - 1
"""
_WRITE = """
writer = LocalLog(Path({folder!r})).writer("web")
assert writer.next_offset == {records} and writer.recovered is None
"""


def run(setting: Setting) -> list[Comparison]:
    records, rounds = setting.choose(10_000_000, 200_000), setting.choose(5, 2)
    folder = setting.folder / "log"
    build(folder, records)
    size = sum(path.stat().st_size for path in folder.rglob("*.seg"))
    to_read, to_write = (code.format(folder=str(folder), records=records) for code in (_READ, _WRITE))
    reading, writing, *_ = by_turns(
        [
            Contender(Role.US, "to read its last record", partial(inside, to_read)),
            Contender(Role.US, "to write", partial(inside, to_write)),
        ],
        rounds,
        warm_up=1,
    )
    whole, imports = (seconds_of(partial(process, code)) for code in (to_read, ""))
    for index in folder.rglob("*.idx"):
        index.unlink()
    mended = ours("to write, index files gone", inside(to_write))
    built = (
        f"{records:,} records in frames of {FRAME:,}, {size / 2**20:,.0f} MiB of segments; seconds inside a fresh "
        f"process that has its imports (from exec to exit: {whole:.2f} s, with the imports alone: {imports:.2f} s)"
    )
    return [
        Comparison("log_open, last record", "s", (reading,), _goal(reading), (built,)),
        Comparison("log_open, to write", "s", (writing,), _goal(writing)),
        Comparison("log_open, index lost", "s", mended, _goal(mended[0])),
    ]


def build(folder: Path, records: int) -> None:
    """Records in frames of the size that a busy collector writes; whether they are synced plays no part here."""
    pool = as_batch(texts(DISTINCT, RECORD_BYTES))
    with LocalLog(folder, LogConfig(fsync="never")).writer("web") as writer:
        for first in range(0, records, FRAME):
            writer.append(pool.slice(first % DISTINCT, FRAME))


def process(code: str) -> str:
    """Run ``code`` in a fresh process that has imported the log."""
    return subprocess.run(
        [sys.executable, "-c", f"{_IMPORTS}\n{code}"], check=True, capture_output=True, text=True
    ).stdout


def inside(code: str) -> float:
    """Seconds that ``code`` itself takes in a fresh process."""
    return float(process(f"began = time.perf_counter()\n{code}\nprint(time.perf_counter() - began)"))


def _goal(figure: Figure) -> Goal:
    return Goal(f"< {GOAL_SECONDS:g} s", figure.value < GOAL_SECONDS)
