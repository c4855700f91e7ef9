"""Records carried in a process that may die of them: the engine hears how, and goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import psutil
import pytest

from penstock.engine.delivery.batch_pieces import Ranges
from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.halts import Halted
from penstock.engine.delivery.task_report import BatchReport
from penstock.engine.ledger import Totals
from penstock.engine.lost_workers.isolation import TRIES_ALONE, Isolation
from penstock.engine.lost_workers.lost_worker import LostCode, WorkerLost
from penstock.engine.lost_workers.trial_process import Trial, TrialServer
from penstock.engine.pipeline import Pipeline
from penstock.errors import PenstockError
from tests.engine.deadly import record, write_steps
from tests.engine.projects import append_all, pipeline
from tests.support.command import command_of

CONFIG = """\
name: shop
sources:
  web: {type: file, path: ./web.ndjson}
routes:
  lenient: {from: web, steps: [python: {file: steps.py, function: treat}], to: {type: file, path: ./lenient}}
  strict:
    from: web
    on_error: stop
    steps: [python: {file: steps.py, function: treat}]
    to: {type: file, path: ./strict}
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pipeline, TrialServer]]:
    folder = tmp_path_factory.mktemp("shop")
    write_steps(folder)
    opened = pipeline(folder, CONFIG)
    server = TrialServer(opened.plan("lenient"), opened.layout.log)
    yield opened, server
    server.close()
    opened.ledger.close()


@pytest.mark.parametrize(
    ("does", "code", "what"),
    [
        ("exit", LostCode.KILLED_WORKER, "ended its process with code 3"),
        ("crash", LostCode.KILLED_WORKER, "had its process killed by SIGSEGV"),
        ("kill", LostCode.KILLED_WORKER, "had its process killed by SIGKILL"),
        ("hang", LostCode.TIMED_OUT, "took longer than 1 s, at "),
        ("hang in C", LostCode.TIMED_OUT, "took longer than 1 s, at "),
    ],
)
def test_a_record_that_ends_its_process_is_told_with_its_step_and_the_next_is_carried(
    shop: tuple[Pipeline, TrialServer], does: str, code: LostCode, what: str
) -> None:
    opened, server = shop
    partition = append_all(opened, "web", [record(1, does), record(2)])
    end = opened.log.bounds(partition).end
    with pytest.raises(WorkerLost) as lost:
        server.run(Trial({partition: (end - 2, end)}, 1.0))
    assert (lost.value.step, lost.value.code) == ("python", code)
    assert what in lost.value.what
    if code is LostCode.TIMED_OUT:
        assert "steps.py, line" in lost.value.what
        assert lost.value.what.endswith("in treat")
    assert server.run(Trial({partition: (end - 1, end)}, 1.0)).staged == 1


def test_what_carrying_raises_is_raised_here_and_a_server_that_was_killed_is_started_again(tmp_path: Path) -> None:
    write_steps(tmp_path)
    opened = pipeline(tmp_path, CONFIG)
    partition = append_all(opened, "web", [record(1)])
    (tmp_path / "steps.py").write_text("raise SystemExit\ndef treat(table): ...\n")
    server = TrialServer(opened.plan("lenient"), opened.layout.log)
    with pytest.raises(PenstockError, match="PEN-STP-002"):
        server.run(Trial({partition: (0, 1)}, None))
    for process in psutil.Process().children(recursive=True):
        if "penstock.engine.lost_workers.trial_process" in command_of(process):
            process.kill()
    with pytest.raises(WorkerLost):
        server.run(Trial({partition: (0, 1)}, None))
    write_steps(tmp_path)
    assert server.run(Trial({partition: (0, 1)}, None)).staged == 1
    server.close()
    opened.ledger.close()


def delivery(opened: Pipeline, route: str, server: TrialServer, limit: float = 1.0) -> Delivery:
    plan = opened.plan(route)
    plan.stage_dir.mkdir(parents=True, exist_ok=True)
    apart = Isolation(lambda ranges, share: server.run(Trial(ranges, share)), limit, plenty=5.0)
    return Delivery(
        plan, plan.destination(), opened.log, opened.ledger, opened.failed_store, Event(), restage_ranges=apart.stage
    )


def test_of_a_range_with_deadly_records_only_those_fail_and_a_strict_route_stops_at_the_first(tmp_path: Path) -> None:
    write_steps(tmp_path)
    opened = pipeline(tmp_path, CONFIG)
    deeds = {3: "exit", 4: "crash", 11: "hang", 7: "once", 19: "kill"}
    partition = append_all(opened, "web", [record(n, deeds.get(n, "")) for n in range(20)])
    for route in ("lenient", "strict"):
        opened.ledger.open_route(route, {partition: 0})
    server = TrialServer(opened.plan("lenient"), opened.layout.log)
    delivery(opened, "lenient", server).deliver_isolated({partition: (0, 20)})
    assert opened.ledger.totals("lenient") == Totals(items=20, loaded=16, failed=4)
    entries = list(opened.failed_store.read("lenient", opened.ledger.failed_extent("lenient")))
    assert sorted((entry.record.offset, entry.step, entry.code) for entry in entries) == [
        (3, "python", "killed_worker"),
        (4, "python", "killed_worker"),
        (11, "python", "timed_out"),
        (19, "python", "killed_worker"),
    ]
    assert opened.ledger.offsets("lenient")[partition].committed == 20
    server.close()

    server = TrialServer(opened.plan("strict"), opened.layout.log)
    with pytest.raises(Halted, match="before offset 3 of partition 0: python: step 'python' ended its process"):
        delivery(opened, "strict", server).deliver_isolated({partition: (0, 20)})
    assert opened.ledger.totals("strict") == Totals(items=3, loaded=3)
    halt = opened.ledger.standing("strict").halt
    assert halt is not None
    assert (halt.offset, halt.code) == (3, "killed_worker")
    server.close()
    opened.ledger.close()


# Which ranges are tried, and for how long


class Deaths:
    """An attempt that is lost so many times."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.limits: list[float | None] = []

    def __call__(self, ranges: Ranges, limit: float | None) -> BatchReport:
        self.limits.append(limit)
        if self.left:
            self.left -= 1
            raise WorkerLost("python", LostCode.KILLED_WORKER, "died")
        return BatchReport(ranges, 1, 1, {}, (), ())


@pytest.mark.parametrize("times", range(TRIES_ALONE + 1))
def test_a_record_alone_is_to_blame_only_if_it_ends_every_try(times: int) -> None:
    attempt = Deaths(times)
    apart = Isolation(attempt, 30.0)
    if times < TRIES_ALONE:
        assert apart.stage({0: (5, 6)}).ranges == {0: (5, 6)}
    else:
        with pytest.raises(WorkerLost):
            apart.stage({0: (5, 6)})
    assert attempt.limits == [30.0, 30.0, 60.0][: times + 1]


def test_after_a_hang_the_whole_is_not_tried_again_and_parts_get_a_share_of_the_time() -> None:
    attempt = Deaths(0)
    hung = WorkerLost("python", LostCode.TIMED_OUT, "took too long")
    apart = Isolation(attempt, 80.0, 100, hung)
    with pytest.raises(WorkerLost):
        apart.stage({0: (0, 100)})
    for ranges in ({0: (0, 50)}, {0: (0, 2)}, {0: (0, 1)}):
        apart.stage(ranges)
    assert attempt.limits == [40.0, 10.0, 80.0]
    killed = replace_code(apart, LostCode.KILLED_WORKER)
    assert killed.stage({0: (0, 100)}).items == 1


def replace_code(apart: Isolation, code: LostCode) -> Isolation:
    return replace(apart, lost=WorkerLost("python", code, "died"))
