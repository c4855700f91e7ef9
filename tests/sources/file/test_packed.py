"""Compressed files: places in what is unpacked, members and frames, and what breaks off."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import Header
from penstock.sources.file.compressed import PackedContent, gzip_chunks, zstd_chunks
from penstock.testing.source import log_records, running
from penstock.testing.waiting import HANG
from tests.sources.file.test_rotation import context, following, live, read_once, write

__all__ = ["live"]

PACKERS = {".gz": gzip.compress, ".zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True)}
UNPACKERS = {".gz": gzip_chunks, ".zst": zstd_chunks}
ENDINGS = list(PACKERS)


def lines(*values: int) -> bytes:
    return b"".join(b'{"n":%d}\n' % value for value in values)


@pytest.mark.parametrize("ending", ENDINGS)
def test_members_are_one_stream(tmp_path: Path, live: Path, ending: str) -> None:
    pack = PACKERS[ending]
    file = live.with_name(f"a.ndjson{ending}")
    file.write_bytes(pack(lines(1, 2) + b'{"n"') + pack(b":3}\nbad\n") + pack(b"") + pack(b'{"n":4}'))
    assert read_once(tmp_path) == [1, 2, 3, 4]
    bad = next(record for record in log_records(tmp_path / "log") if Header.MALFORMED in record.headers)
    assert f"a.ndjson{ending}:4: not JSON" in bad.headers[Header.MALFORMED]
    assert json.loads(bad.headers[Header.POSITION])["end"] == 28
    assert read_once(tmp_path) == [1, 2, 3, 4]


@pytest.mark.parametrize("ending", ENDINGS)
@given(content=st.binary(max_size=300), places=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300))))
def test_any_place_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, ending: str, content: bytes, places: list[tuple[int, int]]
) -> None:
    file = tmp_path_factory.mktemp("packed") / f"a{ending}"
    half = len(content) // 2
    file.write_bytes(PACKERS[ending](content[:half]) + PACKERS[ending](content[half:]))
    packed = PackedContent(file, UNPACKERS[ending])
    assert [packed.read(at, size) for at, size in places] == [content[at : at + size] for at, size in places]
    assert packed.length() == len(content)
    assert packed.is_complete()
    packed.close()


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_breaks_off_is_taken_as_far_as_it_goes_and_read_on_when_it_is_whole(
    tmp_path: Path, live: Path, ending: str
) -> None:
    whole = PACKERS[ending](lines(*range(100_000, 160_000)))
    file = live.with_name(f"a.ndjson{ending}")
    file.write_bytes(whole[: len(whole) * 2 // 3])
    some = read_once(tmp_path)
    assert some == list(range(100_000, 100_000 + len(some)))
    assert len(some) > 1000
    file.write_bytes(whole)
    assert read_once(tmp_path) == list(range(100_000, 160_000))
    assert not any(Header.MALFORMED in record.headers for record in log_records(tmp_path / "log"))


def test_a_damaged_file_does_not_stop_the_others(tmp_path: Path, live: Path) -> None:
    live.with_name("a.gz").write_bytes(b"this is no gzip")
    write(live.with_name("b.ndjson"), 1)
    assert read_once(tmp_path) == [1]


def test_a_rotated_file_that_was_compressed_is_not_read_again(tmp_path: Path, live: Path) -> None:
    write(live, 1, 2)
    with following(tmp_path, "in/app.log*") as wait:
        wait([1, 2])
        write(live, 3)
        live.rename(live.with_name("app.log.1"))
        live.with_name("app.log.1.gz").write_bytes(gzip.compress(live.with_name("app.log.1").read_bytes()))
        live.with_name("app.log.1").unlink()
        write(live, 4)
        wait([1, 2, 3, 4])
    assert read_once(tmp_path, "in/app.log*") == [1, 2, 3, 4]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_kill_neither_loses_nor_doubles(
    tmp_path: Path, live: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.with_name(f"a{ending}").write_bytes(PACKERS[ending](lines(*range(500))))
    monkeypatch.setenv("PENSTOCK_FAULTS", "log.append.after_fsync@7=kill")
    options = json.dumps({"path": str(live.parent), "batch_bytes": 300})
    with running("file", options, context(tmp_path), once=True) as process:
        process.join(HANG)
        assert process.exitcode == -9
    monkeypatch.delenv("PENSTOCK_FAULTS")
    assert read_once(tmp_path, batch_bytes=300) == list(range(500))
