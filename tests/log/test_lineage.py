"""Offsets that an older copy of the log gives again are told from those that were given before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import LogError
from penstock.log.lineage import LINEAGE_FILE, Incarnation, Lineage
from penstock.log.local_log import LocalLog
from penstock.record import Record, entries


def append(folder: Path, count: int) -> None:
    with LocalLog(folder).writer("web") as writer:
        for n in range(count):
            writer.append(entries([Record(str(n).encode(), namespace="web")]))


def test_offsets_that_a_copy_gives_again_have_another_writer(tmp_path: Path) -> None:
    append(tmp_path / "a", 3)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    append(tmp_path / "a", 4)
    append(tmp_path / "b", 2)
    ours, theirs = LocalLog(tmp_path / "a").lineage(0), LocalLog(tmp_path / "b").lineage(0)
    assert [ours.writer_of(n) == theirs.writer_of(n) for n in range(5)] == [True] * 3 + [False] * 2
    assert ours.agreed(theirs, 0, 5) == 3
    assert ours.agreed(theirs, 3, 5) == 3
    assert ours.agreed(theirs, 0, 2) == 2


def test_a_copy_made_before_the_first_record_is_told_apart(tmp_path: Path) -> None:
    append(tmp_path / "a", 0)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    append(tmp_path / "a", 1)
    append(tmp_path / "b", 1)
    assert LocalLog(tmp_path / "a").lineage(0).agreed(LocalLog(tmp_path / "b").lineage(0), 0, 1) == 0


def test_a_copy_made_while_a_writer_is_at_it_is_told_apart(tmp_path: Path) -> None:
    with LocalLog(tmp_path / "a").writer("web") as writer:
        writer.append(entries([Record(b"1", namespace="web")]))
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        writer.append(entries([Record(b"2", namespace="web")]))
    append(tmp_path / "b", 1)
    assert LocalLog(tmp_path / "a").lineage(0).agreed(LocalLog(tmp_path / "b").lineage(0), 0, 2) == 1


def test_opening_without_appending_leaves_no_trace(tmp_path: Path) -> None:
    append(tmp_path, 1)
    before = LocalLog(tmp_path).lineage(0)
    for _ in range(3):
        append(tmp_path, 0)
    assert LocalLog(tmp_path).lineage(0) == before


def test_a_log_of_before_goes_on(tmp_path: Path) -> None:
    append(tmp_path, 2)
    (tmp_path / "0" / LINEAGE_FILE).unlink()
    append(tmp_path, 1)
    lineage = LocalLog(tmp_path).lineage(0)
    assert lineage.writer_of(0) == lineage.writer_of(1) == ""
    assert lineage.writer_of(2) != ""


def test_a_damaged_lineage_is_said(tmp_path: Path) -> None:
    append(tmp_path, 2)
    (tmp_path / "0" / LINEAGE_FILE).write_text("[[0")
    with pytest.raises(LogError, match="PEN-LOG-007"):
        LocalLog(tmp_path).lineage(0)


def test_an_append_names_a_damaged_lineage_every_time_and_works_when_it_is_moved_away(tmp_path: Path) -> None:
    append(tmp_path, 2)
    path = tmp_path / "0" / LINEAGE_FILE
    path.write_text("[[0")
    more = entries([Record(b"3", namespace="web")])
    with LocalLog(tmp_path).writer("web") as writer:
        for _ in range(2):
            with pytest.raises(LogError, match=f"PEN-LOG-007.*{LINEAGE_FILE}"):
                writer.append(more)
        path.rename(tmp_path / "aside")
        assert writer.append(more) == range(2, 3)
    assert LocalLog(tmp_path).lineage(0).writer_of(2) != ""


WRITERS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc")), max_size=6).map(
    lambda found: Lineage(tuple(Incarnation(*each) for each in sorted(dict(found).items())))
)


@given(WRITERS, WRITERS, st.integers(0, 30), st.integers(0, 30))
def test_two_lineages_agree_up_to_the_first_offset_of_different_writers(
    one: Lineage, other: Lineage, start: int, end: int
) -> None:
    differing = [n for n in range(start, end) if one.writer_of(n) != other.writer_of(n)]
    if start < end:
        assert one.agreed(other, start, end) == (differing[0] if differing else end)
    part = one.within(start, end)
    assert all(part.writer_of(n) == one.writer_of(n) for n in range(start, end))
