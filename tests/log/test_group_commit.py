"""Many callers, one writer: each submission is taken whole, once, in one place, or its caller is told why not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import LogError, PenstockError
from penstock.log.format.frame import Body
from penstock.log.group_commit import LARGE, Entry, GroupCommit, entry_batch
from penstock.log.local_log import LocalLog
from penstock.log.writer import PartitionWriter
from penstock.record import ENTRY_SCHEMA
from penstock.testing.waiting import HANG
from tests.contract.log import config
from tests.log.samples import rows


@pytest.fixture
def log(tmp_path: Path) -> LocalLog:
    return LocalLog(tmp_path, config(segment_bytes="64KiB"))


@pytest.fixture
def writer(log: LocalLog) -> Iterator[PartitionWriter]:
    with log.writer("web") as writer:
        yield writer


class Told:
    """What the callers of ``submit`` were told, in order."""

    def __init__(self) -> None:
        self.answers: list[tuple[range | None, Exception | None]] = []

    def __call__(self, taken: range | None, error: Exception | None) -> None:
        self.answers.append((taken, error))


def entry(data: bytes, key: str | None = None) -> Entry:
    return Entry(1_900_000_000_000_000, "web.events", key, (("token", "site"),), data)


def test_every_submission_of_many_threads_is_taken_once_and_whole(log: LocalLog, writer: PartitionWriter) -> None:
    places: dict[bytes, int] = {}
    commit = GroupCommit(writer)

    def client(name: int) -> None:
        for turn in range(50):
            bodies = [b"%d/%d/%d" % (name, turn, i) for i in range(1 + turn % 3)]
            answered = threading.Event()

            def done(taken: range | None, error: Exception | None, bodies: list[bytes] = bodies) -> None:
                assert taken is not None
                places.update(zip(bodies, taken, strict=True))
                answered.set()  # noqa: B023 - every turn waits for its own answer

            assert commit.submit([entry(body) for body in bodies], done)
            assert answered.wait(30)

    threads = [threading.Thread(target=client, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    commit.close()
    assert len(places) == 8 * (17 * 1 + 17 * 2 + 16 * 3)
    assert {record.data: record.offset for record in rows(log)} == places


def test_closing_commits_what_was_submitted(log: LocalLog, writer: PartitionWriter) -> None:
    told = Told()
    commit = GroupCommit(writer)
    for n in range(500):
        assert commit.submit([entry(b"%d" % n)], told)
    commit.close()
    assert [answer for answer, _ in told.answers] == [range(n, n + 1) for n in range(500)]
    assert len(rows(log)) == 500
    assert not commit.submit([entry(b"late")], told)


def test_too_much_waiting_is_refused_at_once(writer: PartitionWriter) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def slow(taken: range | None, error: Exception | None) -> None:
        reached.set()
        assert go_on.wait(30)

    told = Told()
    commit = GroupCommit(writer, max_pending_bytes=1000)
    assert commit.submit([entry(b"first")], slow)
    assert reached.wait(30)
    assert commit.submit([entry(b"x" * 500)], told)
    assert not commit.submit([entry(b"x" * 500)], told)
    go_on.set()
    commit.close()
    assert len(told.answers) == 1
    assert commit.pending_bytes == 0


def test_one_submission_larger_than_the_limit_passes_when_nothing_waits(writer: PartitionWriter) -> None:
    told = Told()
    commit = GroupCommit(writer, max_pending_bytes=10)
    assert commit.submit([entry(b"x" * 5000)], told)
    commit.close()
    assert told.answers == [(range(1), None)]


def test_a_submission_that_cannot_be_written_does_not_take_others_with_it(
    log: LocalLog, writer: PartitionWriter
) -> None:
    good, bad, large, after = Told(), Told(), Told(), Told()
    commit = GroupCommit(writer, max_pending_bytes=2**30)
    for _ in range(20):
        commit.submit([entry(b"good")], good)
        commit.submit([entry(b"bad", key="\ud800")], bad)
    commit.submit([entry(b"x" * (65 * 2**20))], large)
    commit.submit([entry(b"after")], after)
    commit.close()
    assert all(taken is not None for taken, _ in good.answers)
    assert all(isinstance(error, UnicodeEncodeError) for _, error in bad.answers)
    [(_, error)] = large.answers
    assert isinstance(error, LogError)
    assert error.code == "PEN-LOG-002"
    assert after.answers == [(range(20, 21), None)]
    assert (len(good.answers), len(bad.answers), len(rows(log))) == (20, 20, 21)


def test_a_large_submission_that_takes_its_time_holds_up_nobody(
    log: LocalLog, writer: PartitionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, answered = threading.Event(), threading.Event(), threading.Event()
    prepare = writer.prepare

    def slowly(batch: pa.RecordBatch) -> Body | None:
        if batch.nbytes >= LARGE:
            begun.set()
            assert go_on.wait(HANG)
        return prepare(batch)

    monkeypatch.setattr(writer, "prepare", slowly)
    large, behind = Told(), Told()
    commit = GroupCommit(writer)
    assert commit.submit([entry(b"x" * 100) for _ in range(20_000)], large)
    assert begun.wait(HANG)
    assert commit.submit([entry(b"small")], lambda taken, error: answered.set())
    assert answered.wait(HANG)
    assert large.answers == []
    assert commit.submit([entry(b"x" * LARGE)], behind)
    go_on.set()
    commit.close()
    assert large.answers == [(range(1, 20_001), None)]
    assert behind.answers == [(range(20_001, 20_002), None)]
    assert commit.pending_bytes == 0
    assert [record.offset for record in rows(log)] == list(range(20_002))


def test_everyone_in_a_failed_group_is_told_and_the_next_is_tried(log: LocalLog) -> None:
    writer = log.writer("web")
    writer.close()
    told = Told()
    commit = GroupCommit(writer)
    for _ in range(10):
        assert commit.submit([entry(b"x")], told)
    commit.close()
    assert len(told.answers) == 10
    assert all(isinstance(error, PenstockError) and error.code == "PEN-LOG-006" for _, error in told.answers)


def test_a_caller_that_fails_when_told_does_not_stop_the_others(writer: PartitionWriter) -> None:
    def broken(taken: range | None, error: Exception | None) -> None:
        raise RuntimeError("the caller's own trouble")

    told = Told()
    commit = GroupCommit(writer)
    commit.submit([entry(b"a")], broken)
    commit.submit([entry(b"b")], told)
    commit.close()
    assert told.answers == [(range(1, 2), None)]


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
any_entry = st.builds(
    Entry,
    timestamp_us=st.integers(0, 2**52),
    namespace=text,
    key=st.none() | text,
    headers=st.sampled_from([(), (("a", "b"),), (("token", "x"), ("ip", "::1"))]) | st.tuples(st.tuples(text, text)),
    data=st.binary(max_size=5),
    op=st.sampled_from(["insert", "delete"]),
    mode=st.sampled_from(["sync", "copy"]),
)


@given(st.lists(any_entry, max_size=8))
def test_entries_become_the_batch_that_a_plain_conversion_gives(entries: list[Entry]) -> None:
    batch = entry_batch(entries)
    plain = [
        {"timestamp": e.timestamp_us, "namespace": e.namespace, "op": e.op, "mode": e.mode, "key": e.key,
         "headers": list(e.headers), "data": e.data}
        for e in entries
    ]  # fmt: skip
    assert batch.equals(pa.RecordBatch.from_pylist(plain, ENTRY_SCHEMA))
    batch.validate(full=True)
