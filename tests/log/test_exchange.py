"""Logs in Transporter's layout: written as it writes them, read back to the byte, refused whole when damaged."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import LogError
from penstock.log.exchange.encode import encode
from penstock.log.exchange.entry_layout import MODES, OPS
from penstock.log.exchange.export_log import export_transporter
from penstock.log.exchange.import_log import import_transporter
from penstock.log.local_log import LocalLog, PartitionOwner
from penstock.log.maintenance.compaction import compact
from penstock.log.maintenance.verify import verify
from penstock.record import Mode, Op, Record, entries, placed
from tests.contract.log import config
from tests.log.samples import START, numbered, numbers, repeating, rows

EXAMPLE = bytes(
    [
        *(0, 0, 0, 0, 0, 0, 0, 100),  # offset
        *(0, 0, 0, 16),  # length
        *(0, 0, 0, 0, 88, 226, 180, 78),  # timestamp
        0b1001,  # sync, delete
        *(0, 0, 0, 3),  # key length
        *b"key",
        *(0, 0, 0, 5),  # data length
        *b"value",
    ]
)


def by_hand(record: Record) -> bytes:
    """One entry, written field by field."""
    key, data = record.namespace.encode(), record.data or b""
    seconds = (record.timestamp - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    mode = MODES.index(record.mode) | OPS.index(record.op) << 2
    body = struct.pack(">I", len(key)) + key + struct.pack(">I", len(data)) + data
    return struct.pack(">qIqB", record.offset, len(body), seconds, mode) + body


def test_an_entry_is_laid_out_as_the_seed_says(tmp_path: Path) -> None:
    time = datetime.fromtimestamp(1491252302, UTC)
    record = Record(b"value", "key", Op.DELETE, Mode.SYNC, timestamp=time)
    assert encode(placed(entries([record]), 0, 100)).to_pybytes() == EXAMPLE
    (tmp_path / "in.log").write_bytes(EXAMPLE)
    log = LocalLog(tmp_path / "log")
    done = import_transporter(log, tmp_path / "in.log")
    assert (done.entries, done.bytes, done.there_before) == (1, len(EXAMPLE), 0)
    [found] = rows(log)
    assert (found.offset, found.timestamp, found.namespace, found.data) == (100, time, "key", b"value")
    assert (found.op, found.mode, found.key, found.headers) == (Op.DELETE, Mode.SYNC, None, {})


records = st.builds(
    Record,
    data=st.none() | st.binary(max_size=40),
    namespace=st.text(max_size=12),
    op=st.sampled_from(Op),
    mode=st.sampled_from(Mode),
    key=st.none() | st.text(max_size=3),
    headers=st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2),
    timestamp=st.datetimes(datetime(1960, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    partition=st.just(0),
)


@given(st.lists(records, min_size=1, max_size=30), st.integers(0, 2**40))
@settings(max_examples=150, deadline=None)
def test_a_batch_is_encoded_as_if_by_hand(found: list[Record], first: int) -> None:
    batch = placed(entries(found), 0, first)
    expected = b"".join(by_hand(_at(record, first + n)) for n, record in enumerate(found))
    assert encode(batch).to_pybytes() == expected
    cut = len(found) // 2
    assert encode(batch.slice(cut)).to_pybytes() == b"".join(
        by_hand(_at(record, first + cut + n)) for n, record in enumerate(found[cut:])
    )


def _at(record: Record, offset: int) -> Record:
    return Record(
        record.data, record.namespace, record.op, record.mode, record.key, record.headers, record.timestamp, 0, offset
    )


def logged(directory: Path, count: int = 500) -> LocalLog:
    log = LocalLog(directory, config(segment_bytes=20_000))
    with log.writer("web") as writer:
        for n in range(0, count, 20):
            writer.append(repeating(range(n, n + 20), n % 30))
    return log


def test_a_file_goes_in_and_comes_out_to_the_byte(tmp_path: Path) -> None:
    log = logged(tmp_path / "log")
    compact(log, {0: 300})
    first = export_transporter(log, 0, tmp_path / "first.log")
    other = LocalLog(tmp_path / "other")
    done = import_transporter(other, tmp_path / "first.log", "copy")
    again = export_transporter(other, done.partition, tmp_path / "again.log")
    assert (tmp_path / "again.log").read_bytes() == (tmp_path / "first.log").read_bytes()
    assert first.entries == done.entries == again.entries == len(numbers(log)) < 500
    assert numbers(other) == numbers(log)
    assert other.partitions() == {0: PartitionOwner("copy", -1)}
    assert other.bounds(0).end == 500


@pytest.mark.parametrize(("start", "end"), [(0, None), (7, 8), (100, 313), (499, None), (600, None), (5, 5)])
def test_a_part_of_a_log_is_exported(tmp_path: Path, start: int, end: int | None) -> None:
    log = logged(tmp_path / "log")
    done = export_transporter(log, 0, tmp_path / "out.log", start, end)
    expected = [record for record in rows(log) if record.offset >= start and (end is None or record.offset < end)]
    assert (tmp_path / "out.log").read_bytes() == b"".join(map(by_hand, expected))
    assert done.entries == len(expected)


def test_what_the_layout_has_no_room_for_is_counted(tmp_path: Path) -> None:
    log = LocalLog(tmp_path / "log")
    with log.writer("web") as writer:
        writer.append(numbered(range(10)))
    done = export_transporter(log, 0, tmp_path / "out.log")
    assert (done.keys_left_out, done.headers_left_out) == (5, 8)


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    log = logged(tmp_path / "log", 20)
    (tmp_path / "out.log").write_bytes(b"precious")
    with pytest.raises(LogError, match="PEN-LOG-015"):
        export_transporter(log, 0, tmp_path / "out.log")
    assert (tmp_path / "out.log").read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "out.log"]


def test_a_file_cut_at_any_byte_is_refused_whole_and_says_what_stands_before_the_cut(tmp_path: Path) -> None:
    whole = b"".join(by_hand(_at(Record(b"x" * n, "shop", timestamp=START), 10 + n)) for n in range(4))
    ends = [whole.index(struct.pack(">q", 10 + n)) for n in range(4)]
    log = LocalLog(tmp_path / "log")
    for length in range(1, len(whole)):
        if length in ends:
            continue
        (tmp_path / "cut.log").write_bytes(whole[:length])
        before = [n for n, end in enumerate(ends) if end < length][-1]
        said = rf"PEN-LOG-016.* at byte {ends[before]} of {length}, the file ends in the middle"
        with pytest.raises(LogError, match=said) as refused:
            import_transporter(log, tmp_path / "cut.log")
        assert ("whole entries" in refused.value.what) == (before > 0)
        assert (f"head -c {ends[before]}" in refused.value.fix) == (before > 0)
    assert log.partitions() == {}


@pytest.mark.parametrize(
    ("position", "content", "why"),
    [
        (8, b"\0\0\0\x0f", "lengths"),
        (21, b"\0\0\0\x04", "lengths"),
        (21, b"\xff\xff\xff\xff", "lengths"),
        (28, b"\0\0\0\x04", "lengths"),
        (20, b"\x03", "mode byte"),
        (20, b"\x14", "mode byte"),
        (20, b"\x81", "mode byte"),
        (0, b"\xff" * 8, "offset"),
        (0, b"\x7f" + b"\xff" * 7, "highest that a log can give"),
        (12, b"\x7f" * 8, "timestamp"),
        (25, b"\xff\xfe\xff", "UTF-8"),
    ],
)
def test_an_entry_that_is_none_is_refused_with_its_byte_and_the_reason(
    tmp_path: Path, position: int, content: bytes, why: str
) -> None:
    second = bytearray(EXAMPLE)
    second[7] = 101
    second[position : position + len(content)] = content
    (tmp_path / "bad.log").write_bytes(EXAMPLE + bytes(second) + EXAMPLE[:7] + b"\x66" + EXAMPLE[8:])
    log = LocalLog(tmp_path / "log")
    with pytest.raises(LogError, match=rf"PEN-LOG-016.*at byte {len(EXAMPLE)} of .*{why}"):
        import_transporter(log, tmp_path / "bad.log")
    assert log.partitions() == {}


def test_offsets_that_do_not_ascend_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.log").write_bytes(EXAMPLE + EXAMPLE)
    with pytest.raises(LogError, match="offset is not above"):
        import_transporter(LocalLog(tmp_path / "log"), tmp_path / "bad.log")


def test_behind_the_highest_offset_nothing_is_written_and_what_is_there_stays_readable(tmp_path: Path) -> None:
    (tmp_path / "high.log").write_bytes(b"\x7f" + b"\xff" * 6 + b"\xfe" + EXAMPLE[8:])
    log = LocalLog(tmp_path / "log")
    import_transporter(log, tmp_path / "high.log")
    with log.writer("import", -1) as writer, pytest.raises(LogError, match="PEN-LOG-019"):
        writer.append(numbered([0]))
    assert [record.offset for record in rows(log)] == [2**63 - 2]
    (check,) = verify(log)
    assert check.is_whole


def test_an_import_that_was_interrupted_goes_on_and_one_that_was_done_does_nothing(tmp_path: Path) -> None:
    log = logged(tmp_path / "log")
    export_transporter(log, 0, tmp_path / "all.log")
    export_transporter(log, 0, tmp_path / "half.log", 0, 240)
    other = LocalLog(tmp_path / "other")
    assert import_transporter(other, tmp_path / "half.log").there_before == 0
    assert import_transporter(other, tmp_path / "all.log").there_before == 240
    assert import_transporter(other, tmp_path / "all.log").there_before == 500
    assert numbers(other) == numbers(log)


def test_other_entries_at_the_same_offsets_are_refused(tmp_path: Path) -> None:
    log = LocalLog(tmp_path / "log")
    (tmp_path / "one.log").write_bytes(EXAMPLE)
    (tmp_path / "other.log").write_bytes(EXAMPLE.replace(b"value", b"other"))
    import_transporter(log, tmp_path / "one.log")
    with pytest.raises(LogError, match=r"PEN-LOG-017.*100 to 100.*--source"):
        import_transporter(log, tmp_path / "other.log")
    assert import_transporter(log, tmp_path / "other.log", "second").partition == 1


def test_an_empty_file_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_bytes(b"")
    done = import_transporter(LocalLog(tmp_path / "log"), tmp_path / "empty.log")
    assert (done.entries, done.bytes) == (0, 0)


def test_offsets_of_ones_own_must_ascend_from_the_end_of_the_log(tmp_path: Path) -> None:
    log = LocalLog(tmp_path)
    with log.writer("web") as writer:
        assert writer.append_at(repeating([3, 7]), np.array([3, 7])) == range(3, 8)
        assert writer.append_at(repeating([8, 9]), np.array([8, 9])) == range(8, 10)
        assert writer.append_at(repeating([]), np.array([], np.int64)) == range(10, 10)
        for offsets in ([9, 10], [12, 11], [11, 11], [11]):
            with pytest.raises(LogError, match="PEN-LOG-014"):
                writer.append_at(repeating([11, 12]), np.array(offsets))
        assert writer.append(repeating([10])) == range(10, 11)
    assert numbers(log) == [(n, n) for n in (3, 7, 8, 9, 10)]
