"""The archive: names, days, tokens, and that what went in is what is in it."""

from __future__ import annotations

import errno
import gzip
import json
import os
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import faults
from penstock.destinations.archive import read_archive
from penstock.destinations.archive.config import ArchiveConfig
from penstock.destinations.archive.destination import ArchiveDestination
from penstock.destinations.archive.file_names import file_name, stem
from penstock.destinations.archive.stager import ArchiveStager
from penstock.destinations.contract import AnyDestination, Part
from penstock.errors import PenstockError, TransientError
from penstock.record import Record, entries, placed
from penstock.testing.destination import CopyContract, Staging, batch, delivered_rows

NOON = datetime(2026, 3, 1, 12, 0, 0, 123_456, UTC)


class LogStaging(Staging):
    """Records whose times are those of their places, as those of a log that is read again are."""

    def stage(self, data: Sequence[bytes | None], partition: int = 0, first: int = 0, size: int = 10_000) -> list[Part]:
        stager = self.destination.stager(self.directory, self.casts)
        for start in range(0, len(data), size):
            rows = [
                Record(item, namespace="web", timestamp=NOON + timedelta(milliseconds=first + start + place))
                for place, item in enumerate(data[start : start + size])
            ]
            self.outcomes.append(stager.add(placed(entries(rows), partition, first + start)))
        return stager.finish()


class TestArchive(CopyContract):
    def make(self, tmp_path: Path) -> ArchiveDestination:
        return archive(tmp_path)

    @pytest.fixture
    def staging(self, destination: AnyDestination, tmp_path: Path) -> LogStaging:
        return LogStaging(destination, tmp_path / "stage")

    def ids(self, destination: AnyDestination) -> list[int]:
        return [json.loads(line)["id"] for line in read_archive(destination.config.path)]


def archive(folder: Path) -> ArchiveDestination:
    return ArchiveDestination(ArchiveConfig(path=folder / "archive"))


def event(data: bytes, at: datetime = NOON, token: str | None = "site", namespace: str = "web") -> Record:
    return Record(data, namespace, headers={} if token is None else {"token": token}, timestamp=at)


def stage(folder: Path, *rows: Record, first: int = 0, held_bytes: int = 1 << 20, size: int = 100) -> list[Part]:
    (folder / "stage").mkdir(exist_ok=True)
    stager = ArchiveStager(folder / "stage", held_bytes)
    for start in range(0, len(rows), size):
        stager.add(placed(entries(rows[start : start + size]), 0, first + start))
    return stager.finish()


def names(folder: Path) -> list[str]:
    """Every file below the archive, hidden ones too."""
    return sorted(
        str(path.relative_to(folder / "archive")) for path in (folder / "archive").rglob("*") if path.is_file()
    )


def lines(folder: Path, name: str) -> bytes:
    return gzip.decompress((folder / "archive" / name).read_bytes())


NAMES = [
    (event(b"1"), "2026-03-01/incoming.tok=site-2026-03-01T12-00-00.123.log.gz"),
    (event(b"1", NOON.replace(microsecond=0)), "2026-03-01/incoming.tok=site-2026-03-01T12-00-00.000.log.gz"),
    (event(b"1", token="a/b |ü"), "2026-03-01/incoming.tok=a%2Fb%20%7C%C3%BC-2026-03-01T12-00-00.123.log.gz"),
    (event(b"1", token=".."), "2026-03-01/incoming.tok=..-2026-03-01T12-00-00.123.log.gz"),
    (event(b"1", token=None), "2026-03-01/incoming.ns=web-2026-03-01T12-00-00.123.log.gz"),
    (event(b"1", token=None, namespace=""), "2026-03-01/incoming.ns=-2026-03-01T12-00-00.123.log.gz"),
    (
        event(b"1", datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        "1969-12-31/incoming.tok=site-1969-12-31T23-59-59.999.log.gz",
    ),
]


@pytest.mark.parametrize(("record", "name"), NAMES)
def test_a_name_says_day_token_and_time_of_the_first_event(record: Record, name: str, tmp_path: Path) -> None:
    archive(tmp_path).write(batch(), stage(tmp_path, record))
    assert names(tmp_path) == [name]


def test_the_id_of_a_token_may_be_of_any_length(tmp_path: Path) -> None:
    ids = ["ü" * 500, "ü" * 501]
    archive(tmp_path).write(batch(), stage(tmp_path, *(event(b"%d" % n, token=ids[n]) for n in range(2))))
    assert len(names(tmp_path)) == 2
    assert sorted(read_archive(tmp_path / "archive")) == [b"0", b"1"]


def test_each_token_has_a_file_of_its_own_and_no_token_takes_a_namespaces_place(tmp_path: Path) -> None:
    rows = [event(b"1"), event(b"2", token="app"), event(b"3", token=None), event(b"4", token="web"), event(b"5")]
    receipt = archive(tmp_path).write(batch(), stage(tmp_path, *rows))
    assert {name.split("/")[1].partition("-")[0]: lines(tmp_path, name) for name in names(tmp_path)} == {
        "incoming.tok=site": b"1\n5\n",
        "incoming.tok=app": b"2\n",
        "incoming.ns=web": b"3\n",
        "incoming.tok=web": b"4\n",
    }
    assert {table.table: table.rows for table in receipt.tables} == {
        "tok=site": 2,
        "tok=app": 1,
        "ns=web": 1,
        "tok=web": 1,
    }


def test_a_batch_over_midnight_is_in_both_days(tmp_path: Path) -> None:
    midnight = datetime(2026, 3, 1, tzinfo=UTC)
    rows = [event(b"%d" % n, midnight + timedelta(milliseconds=n)) for n in (-2, 1, -1, 0)]
    receipt = archive(tmp_path).write(batch(), stage(tmp_path, *rows))
    assert {name: lines(tmp_path, name) for name in names(tmp_path)} == {
        "2026-02-28/incoming.tok=site-2026-02-28T23-59-59.998.log.gz": b"-2\n-1\n",
        "2026-03-01/incoming.tok=site-2026-03-01T00-00-00.000.log.gz": b"1\n0\n",
    }
    assert [(table.table, table.rows) for table in receipt.tables] == [("tok=site", 4)]


def test_parts_of_several_tasks_become_one_file(tmp_path: Path) -> None:
    later = stage(tmp_path, event(b"3", NOON), event(b"4"), first=2)
    earlier = stage(tmp_path, event(b"1", NOON + timedelta(seconds=1)), event(b"2"))
    archive(tmp_path).write(batch(), [*later, *earlier])
    (name,) = names(tmp_path)
    assert name.endswith("T12-00-00.123.log.gz")
    assert lines(tmp_path, name) == b"1\n2\n3\n4\n"


@pytest.mark.parametrize("size", [1, 3])
def test_a_file_is_called_by_its_earliest_event_wherever_that_is(size: int, tmp_path: Path) -> None:
    rows = [event(b"%d" % n, NOON + timedelta(milliseconds=n)) for n in (4, -3, 2)]
    archive(tmp_path).write(batch(), stage(tmp_path, *rows, size=size))
    assert [(name[-10:-7], lines(tmp_path, name)) for name in names(tmp_path)] == [("120", b"4\n-3\n2\n")]


def test_batches_of_the_same_millisecond_keep_their_own_files(tmp_path: Path) -> None:
    target = archive(tmp_path)
    for number in range(3):
        target.write(batch(number), stage(tmp_path, event(b"%d" % number)))
    for number in (1, 0, 2):
        target.write(batch(number), stage(tmp_path, event(b"%d" % number)))
    assert [(name[-10:-7], lines(tmp_path, name)) for name in names(tmp_path)] == [
        ("123", b"0\n"),
        ("124", b"1\n"),
        ("125", b"2\n"),
    ]


def test_a_batch_finds_its_file_although_the_one_that_was_in_its_way_is_gone(tmp_path: Path) -> None:
    target = archive(tmp_path)
    target.write(batch(0), stage(tmp_path, event(b"0")))
    target.write(batch(1), stage(tmp_path, event(b"1")))
    (tmp_path / "archive" / names(tmp_path)[0]).unlink()
    target.write(batch(1), stage(tmp_path, event(b"1")))
    assert [(name[-10:-7], lines(tmp_path, name)) for name in names(tmp_path)] == [("124", b"1\n")]


def test_a_file_of_somebody_else_is_never_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "archive" / "2026-03-01"
    folder.mkdir(parents=True)
    theirs = folder / file_name(stem("tok=site"), int(NOON.timestamp() * 1000))
    theirs.write_bytes(gzip.compress(b"theirs\n"))
    archive(tmp_path).write(batch(), stage(tmp_path, event(b"ours")))
    assert list(read_archive(tmp_path / "archive")) == [b"theirs", b"ours"]


def test_the_last_millisecond_of_a_day_may_be_taken(tmp_path: Path) -> None:
    last = datetime(2026, 2, 28, 23, 59, 59, 999_000, UTC)
    for number in range(2):
        archive(tmp_path).write(batch(number), stage(tmp_path, event(b"%d" % number, last)))
    assert names(tmp_path) == [
        "2026-02-28/incoming.tok=site-2026-02-28T23-59-59.999.log.gz",
        "2026-02-28/incoming.tok=site-2026-03-01T00-00-00.000.log.gz",
    ]


@pytest.mark.parametrize("reached", range(1, 5))
def test_a_crash_at_any_file_and_another_try_leave_each_event_once(
    reached: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = archive(tmp_path)
    before = [event(b"before-%d" % n, token=token) for n, token in enumerate(["a", "b"])]
    target.write(batch(0), stage(tmp_path, *before))
    midnight = NOON.replace(hour=0, microsecond=0) + timedelta(days=1)
    rows = [event(b"%s-%d" % (t.encode(), n), at, token=t) for n, at in enumerate([NOON, midnight]) for t in "ab"]
    parts = stage(tmp_path, *rows)
    monkeypatch.setattr(faults, "_armed", faults.parse(f"destination.writing@{reached}=raise"))
    with pytest.raises(TransientError):
        target.write(batch(1), parts)
    assert set(read_archive(tmp_path / "archive")) >= {row.data for row in before}
    assert delivered_rows(target.write(batch(1), parts)) == 4
    assert sorted(read_archive(tmp_path / "archive")) == sorted(row.data or b"" for row in [*before, *rows])
    assert not [name for name in names(tmp_path) if name.endswith(".part")]


def test_a_hidden_name_that_a_crash_left_beside_the_visible_one_harms_nothing(tmp_path: Path) -> None:
    target = archive(tmp_path)
    target.write(batch(), stage(tmp_path, event(b"1")))
    (visible,) = (tmp_path / "archive" / "2026-03-01").iterdir()
    kept = visible.with_name("kept")
    os.link(visible, kept)
    written = kept.read_bytes()
    os.link(visible, visible.with_name(next(iter(hidden_names(tmp_path, target)))))
    target.write(batch(), stage(tmp_path, event(b"1")))
    assert kept.read_bytes() == written
    assert sorted(path.name for path in visible.parent.iterdir()) == sorted([visible.name, "kept"])


def hidden_names(folder: Path, target: ArchiveDestination) -> set[str]:
    """The hidden names that a write uses: seen by having it fail while it gives the file its name."""
    seen: set[str] = set()

    def refuse(source: os.PathLike[str], final: os.PathLike[str]) -> None:
        seen.add(Path(source).name)
        raise OSError(errno.EMLINK, "Too many links")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", refuse)
        other = ArchiveDestination(ArchiveConfig(path=folder / "elsewhere"))
        other.write(batch(), stage(folder, event(b"1")))
    return seen


def test_a_filesystem_without_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    target = archive(tmp_path)
    for number in (0, 1, 0):
        target.write(batch(number), stage(tmp_path, event(b"%d" % number)))
    assert list(read_archive(tmp_path / "archive")) == [b"0", b"1"]
    assert len(names(tmp_path)) == 2


def test_a_target_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    target = archive(tmp_path)
    (tmp_path / "archive").write_text("a file is in the way")
    with pytest.raises(TransientError, match=r"PEN-DST-060.*archive"):
        target.write(batch(), stage(tmp_path, event(b"1")))
    with pytest.raises(PenstockError, match="PEN-DST-061"):
        target.check()


def test_common_tools_read_it(tmp_path: Path) -> None:
    archive(tmp_path).write(batch(), stage(tmp_path, event(b'{"a": 1.50}'), event(b'{"b":\r\n 2}')))
    (name,) = names(tmp_path)
    done = subprocess.run(["gzip", "-dc", str(tmp_path / "archive" / name)], capture_output=True, check=True)
    assert done.stdout == b'{"a": 1.50}\n{"b":   2}\n'


@given(
    rows=st.lists(
        st.tuples(
            st.binary(max_size=20),
            st.sampled_from(["site", "app", None]),
            st.datetimes(datetime(2026, 3, 1, 23, 59), datetime(2026, 3, 2, 0, 1)),
        ),
        max_size=40,
    ),
    size=st.integers(1, 9),
    held_bytes=st.integers(0, 60),
)
def test_what_went_in_is_what_is_in_it(
    rows: list[tuple[bytes, str | None, datetime]],
    size: int,
    held_bytes: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("whole")
    sent = [event(data, at.replace(tzinfo=UTC), token) for data, token, at in rows]
    (folder / "archive").mkdir()
    archive(folder).write(batch(), stage(folder, *sent, held_bytes=held_bytes, size=size))
    expected: dict[tuple[str, str], list[bytes]] = {}
    for data, token, at in rows:
        if data:
            label = "ns=web" if token is None else f"tok={token}"
            line = data.replace(b"\n", b" ").replace(b"\r", b" ")
            expected.setdefault((f"{at:%Y-%m-%d}", f"incoming.{label}"), []).append(line)
    found = {tuple(name[:-31].split("/")): list(read_archive(folder / "archive" / name)) for name in names(folder)}
    assert found == expected


def test_the_events_of_a_file_a_day_and_an_archive_can_be_read(tmp_path: Path) -> None:
    target = archive(tmp_path)
    tomorrow = NOON + timedelta(days=1)
    target.write(batch(0), stage(tmp_path, event(b"3", tomorrow), event(b"1", token="z"), event(b"2")))
    target.write(batch(1), stage(tmp_path, event(b"4", tomorrow + timedelta(seconds=1), token="a")))
    (tmp_path / "archive" / "2026-03-01" / ".half.log.gz.part").write_bytes(b"half")
    assert list(read_archive(tmp_path / "archive")) == [b"2", b"1", b"3", b"4"]
    assert list(read_archive(str(tmp_path / "archive" / "2026-03-02"))) == [b"3", b"4"]
    assert list(read_archive(tmp_path / "archive" / names(tmp_path)[-1])) == [b"3"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    archive(tmp_path).write(batch(), stage(tmp_path, event(b"x" * 500)))
    (name,) = names(tmp_path)
    whole = (tmp_path / "archive" / name).read_bytes()
    for damaged in (whole[:-4], b"no gzip at all", whole[:-12] + bytes(12)):
        (tmp_path / "archive" / name).write_bytes(damaged)
        with pytest.raises(PenstockError, match=r"PEN-DST-062.*incoming\.tok=site"):
            list(read_archive(tmp_path / "archive"))
    with pytest.raises(PenstockError, match="PEN-DST-063"):
        list(read_archive(tmp_path / "nowhere"))
