"""Stages records in a process that they may kill: ``python -m penstock.engine.lost_workers.trial_process``, started by
the engine.

It has loaded what a task needs and forks a process for each trial, so that a crash costs a fork and the engine learns
of it. It exchanges pickles over its standard input and output, and ends when the engine closes its end.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from penstock import parent_death
from penstock.engine.delivery.batch_pieces import Ranges
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.lost_workers.lost_worker import RECORDS_FAULT, LostCode, WorkerLost
from penstock.engine.lost_workers.task_note import unfinished_tasks
from penstock.engine.route_plan import RoutePlan
from penstock.engine.spark.fork_server import FOLDER_VARIABLE, forking_environment, is_fork
from penstock.engine.spark.jvm import relay_output

GRACE = 30.0
"""Seconds beyond its limit after which a trial that has not ended is killed: its process may have been stopped."""


@dataclass(frozen=True)
class Trial:
    """What to stage, ranges or single items, and the seconds that steps may take for each batch of records."""

    what: Ranges | pa.RecordBatch
    limit: float | None
    only_scan: bool = False
    """Whether ranges are only prepared for a holding step."""


class TrialServer:
    """The engine's side of that process. It is started when first needed; ``close`` ends it."""

    def __init__(self, plan: RoutePlan, log: Path) -> None:
        self._plan = plan
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def stage(self, what: Ranges | pa.RecordBatch, limit: float | None) -> BatchReport:
        """Run a trial of it."""
        return self.run(Trial(what, limit))

    def scan(self, ranges: Ranges, limit: float | None) -> BatchReport:
        """Run a trial of the steps before a holding step. What it reports is empty."""
        return self.run(Trial(ranges, limit, only_scan=True))

    def run(self, trial: Trial) -> BatchReport:
        """Stage the records. Raises ``WorkerLost`` if they end their process, or if staging them raises what may be
        their fault; else what it raises."""
        try:
            process = self._ensure_process()
            assert process.stdin is not None
            assert process.stdout is not None
            pickle.dump(trial, process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            self.close()
            raise WorkerLost("", LostCode.KILLED_WORKER, "the process for trials has ended") from error
        if isinstance(answer, RECORDS_FAULT):
            raise WorkerLost("", LostCode.RAISED, f"its task raised {type(answer).__name__}: {answer}") from answer
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, BatchReport)
        return answer

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            process.wait()

    def _ensure_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            output, sink = os.pipe()
            forks = os.environ.get(FOLDER_VARIABLE)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.engine.lost_workers.trial_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                env=None if forks is None else {**os.environ, **forking_environment(forks)},
            )
            os.close(sink)
            threading.Thread(target=relay_output, args=(output,), name="trial-logs", daemon=True).start()
            assert self._process.stdin is not None
            pickle.dump((self._plan, self._log), self._process.stdin)
        return self._process


def serve(asked: BinaryIO, answers: BinaryIO) -> None:
    """Run trials until the engine closes its end."""
    from penstock.engine.spark.warm_up import warm_up

    plan, log = pickle.load(asked)
    if not is_fork():
        warm_up()
    while True:
        try:
            trial = pickle.load(asked)
        except EOFError:
            return
        pickle.dump(_run_trial(plan, log, trial, asked), answers)
        answers.flush()


def _run_trial(plan: RoutePlan, log: Path, trial: Trial, asked: BinaryIO) -> BatchReport | BaseException:
    answer_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answer_end)
        _stage_in_child(plan, log, trial, write_end)
    os.close(write_end)
    with open(answer_end, "rb") as pipe:
        in_time = _wait(plan.stage_dir, child, pipe, trial.limit, asked)
        answer = pipe.read() if in_time else b""
    if not in_time:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if answer:
        with suppress(EOFError, pickle.UnpicklingError):
            found: BatchReport | BaseException = pickle.loads(answer)
            return found
    return _worker_lost(plan.stage_dir, child, status, in_time, trial.limit)


def _stage_in_child(plan: RoutePlan, log: Path, trial: Trial, write_end: int) -> None:
    """Runs in the forked process. Whatever happens here, it never returns into the server."""
    from penstock.engine.delivery.item_staging import stage_items
    from penstock.engine.delivery.task import stage_ranges
    from penstock.engine.stateful.scan_task import try_scan
    from penstock.log.local_log import LocalLog

    code = 1
    try:
        parent_death.request_death_signal(signal.SIGKILL)
        try:
            in_ranges = try_scan if trial.only_scan else stage_ranges
            stage = stage_items if isinstance(trial.what, pa.RecordBatch) else in_ranges
            answer: object = stage(replace(plan, step_timeout=trial.limit), LocalLog(log), trial.what)
        except BaseException as error:
            answer = error
        try:
            content = pickle.dumps(answer)
        except Exception:
            content = pickle.dumps(RuntimeError(f"its task raised {type(answer).__name__}: {answer}"))
        with open(write_end, "wb") as pipe:
            pipe.write(content)
        code = 0
    finally:
        os._exit(code)


def _wait(stage: Path, child: int, pipe: BinaryIO, limit: float | None, asked: BinaryIO) -> bool:
    """Wait until the child has answered or ended. Returns ``False`` if it made no progress for too long. Ends this
    process if the engine is gone."""
    seen: tuple[int, ...] = ()
    since = time.monotonic()
    while True:
        ready, _, _ = select.select([pipe, asked], [], [], 1.0)
        if pipe in ready:
            return True
        if asked in ready:
            # The engine sends nothing before it has an answer: it has ended.
            os.kill(child, signal.SIGKILL)
            os._exit(1)
        moved = tuple(task.moved for task in unfinished_tasks(stage, child))
        if moved != seen:
            seen, since = moved, time.monotonic()
        if limit is not None and time.monotonic() - since > limit + GRACE:
            return False


def _worker_lost(stage: Path, child: int, status: int, in_time: bool, limit: float | None) -> WorkerLost:
    found = unfinished_tasks(stage, child)
    step, hung_at = (found[0].step, found[0].hung_at) if found else ("", "")
    if hung_at or not in_time:
        at = f", at {hung_at}" if hung_at else ""
        return WorkerLost(step, LostCode.TIMED_OUT, f"took longer than {limit:g} s{at}")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return WorkerLost(step, LostCode.KILLED_WORKER, f"had its process killed by {name}")
    return WorkerLost(step, LostCode.KILLED_WORKER, f"ended its process with code {os.WEXITSTATUS(status)}")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a user's code prints must not mix with our answers.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        serve(sys.stdin.buffer, answers)
