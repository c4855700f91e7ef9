import csv
import errno
import gzip
import io
import json
import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import faults
from penstock.destinations.contract import AnyDestination
from penstock.destinations.file.config import FileConfig
from penstock.destinations.file.destination import FileDestination
from penstock.errors import PenstockError, TransientError
from penstock.record import RECORD_SCHEMA, Op, Record, entries, placed
from penstock.testing.destination import (
    CopyContract,
    RepeatableContract,
    Staging,
    batch,
    delivered_rows,
    events,
    numbered,
)
from penstock.testing.source import log_records
from tests.sources.file.test_rotation import source


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "out").iterdir())


def destination(tmp_path: Path, **options: str) -> FileDestination:
    return FileDestination(FileConfig.model_validate({"path": tmp_path / "out", **options}))


class TestNdjson(CopyContract):
    compression = "none"

    def make(self, tmp_path: Path) -> FileDestination:
        return destination(tmp_path, compression=self.compression)

    def ids(self, destination: AnyDestination) -> list[int]:
        text = "".join(self.read(path) for path in sorted(destination.config.path.iterdir(), key=place))
        return [json.loads(line)["id"] for line in text.split("\n")[:-1]]

    def read(self, path: Path) -> str:
        return path.read_text()


class TestGzip(TestNdjson):
    compression = "gzip"

    def read(self, path: Path) -> str:
        return gzip.decompress(path.read_bytes()).decode()


class TestZstd(TestNdjson):
    compression = "zstd"

    def read(self, path: Path) -> str:
        with pa.input_stream(str(path), compression="zstd") as file:
            text: bytes = file.read()
        return text.decode()


def place(path: Path) -> list[int]:
    """Batch, partition and first offset, from a file's name."""
    *before, partition, offset = path.name.partition(".")[0].split("-")
    batch = next(part for part in reversed(before) if len(part) == 10)
    return [int(number) for number in (batch, partition, offset)]


def test_a_name_says_route_batch_partition_and_first_offset(tmp_path: Path) -> None:
    target = destination(tmp_path)
    target.write(batch(12), Staging(target, tmp_path / "stage").stage(numbered([1]), partition=3, first=70))
    (only,) = files(tmp_path)
    route, scope, number, partition, offset = only.name.removesuffix(".ndjson").split("-")
    assert (route, len(scope), number, partition, offset) == ("shop", 8, "0000000012", "3", "70")


def test_lines_are_the_data_as_it_was_sent(tmp_path: Path) -> None:
    target = destination(tmp_path)
    sent = [b'{"a": 1.50}', b'{"pretty":\n  {"b": "x\\ny"}\n}', b"not json at all"]
    target.write(batch(), Staging(target, tmp_path / "stage").stage(sent))
    assert files(tmp_path)[0].read_bytes() == b'{"a": 1.50}\n{"pretty":   {"b": "x\\ny"} }\nnot json at all\n'


def test_parts_that_begin_at_the_same_record_do_not_replace_each_other(tmp_path: Path) -> None:
    target = destination(tmp_path)
    staging = Staging(target, tmp_path / "stage")
    target.write(batch(), staging.stage(numbered([1])) + staging.stage(numbered([2])))
    assert len(files(tmp_path)) == 2


def test_the_stage_may_be_on_another_filesystem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    target = destination(tmp_path)
    target.write(batch(), Staging(target, tmp_path / "stage").stage(numbered([1])))
    assert [path.read_bytes() for path in files(tmp_path)] == [b'{"id": 1}\n']


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_what_an_interrupted_attempt_left_is_gone_after_the_next(tmp_path: Path, compression: str) -> None:
    before = destination(tmp_path, compression=compression)
    parts = Staging(before, tmp_path / "stage").stage(numbered([1]))
    before.write(batch(), parts)
    (final,) = files(tmp_path)
    final.with_name(f".{final.name}.part").write_bytes(b"half")
    other = final.with_name(final.name.replace("-0.ndjson", "-5.ndjson"))
    other.write_bytes(b'{"id":1}\n')
    final.with_name(f".{other.name}-2.part").write_bytes(b"half")
    others = [final.with_name("shop-notes.txt"), final.with_name(".shop-notes.part")]
    for file in others:
        file.write_text("not ours")
    destination(tmp_path, compression=compression).write(batch(), parts)
    assert files(tmp_path) == sorted([final, *others])


def test_an_attempt_that_failed_half_way_leaves_nothing_to_the_next_of_other_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = destination(tmp_path)
    staging = Staging(target, tmp_path / "stage")
    target.write(batch(0), staging.stage(numbered([0])))
    monkeypatch.setattr(faults, "_armed", faults.parse("destination.writing@2=raise"))
    with pytest.raises(TransientError):
        target.write(batch(1), [*staging.stage(numbered([1]), first=1), *staging.stage(numbered([2]), first=2)])
    target.write(batch(1), staging.stage(numbered([1, 2]), first=1))
    assert [file.read_text() for file in files(tmp_path)] == ['{"id": 0}\n', '{"id": 1}\n{"id": 2}\n']


def test_a_batch_costs_the_same_however_many_files_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = destination(tmp_path)
    staging = Staging(target, tmp_path / "stage")
    listed: list[object] = []
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or [])
    for number in range(20):
        target.write(batch(number), staging.stage(numbered([number]), first=number))
    assert len(listed) == 1
    assert len(list((tmp_path / "out").glob("shop-*"))) == 20


def test_a_target_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    target = destination(tmp_path)
    (tmp_path / "out").write_text("a file is in the way")
    with pytest.raises(TransientError, match=r"PEN-DST-011.*out"):
        target.write(batch(), [])
    with pytest.raises(PenstockError, match="PEN-DST-012"):
        target.check()


class TestParquet(RepeatableContract):
    def make(self, tmp_path: Path) -> FileDestination:
        return destination(tmp_path, format="parquet")

    def ids(self, destination: AnyDestination) -> list[int]:
        files = sorted(destination.config.path.iterdir(), key=place)
        return [number for file in files for number in pq.read_table(file).column("id").to_pylist()]


def test_parquet_has_a_typed_column_per_field(tmp_path: Path) -> None:
    target = destination(tmp_path, format="parquet")
    target.write(batch(), Staging(target, tmp_path / "stage").stage(events({"a": {"b": 1}, "c": "x"}, {"d": [1.5]})))
    table = pq.read_table(files(tmp_path)[0])
    assert table.to_pylist() == [{"a_b": 1, "c": "x", "d": None}, {"a_b": None, "c": None, "d": "[1.5]"}]
    assert table.schema.field("a_b").type == pa.int64()


def test_a_field_that_changes_its_type_starts_a_new_parquet_file(tmp_path: Path) -> None:
    target = destination(tmp_path, format="parquet")
    parts = Staging(target, tmp_path / "stage").stage(events({"a": 1}, {"a": 2}, {"a": "x"}), size=1)
    assert delivered_rows(target.write(batch(), parts)) == 3
    assert [pq.read_table(file).column("a").to_pylist() for file in files(tmp_path)] == [[1, 2], ["x"]]


def test_parquet_can_hold_the_records_themselves(tmp_path: Path) -> None:
    target = destination(tmp_path, format="parquet", columns="record", compression="gzip")
    target.write(batch(), Staging(target, tmp_path / "stage").stage([b"not json", None], first=4))
    file = pq.ParquetFile(files(tmp_path)[0])
    assert file.metadata.row_group(0).column(0).compression == "GZIP"
    table = file.read()
    assert table.column_names == RECORD_SCHEMA.names
    assert table.column("offset").to_pylist() == [4, 5]
    assert table.column("data").to_pylist() == [b"not json", None]


class TestCsv(RepeatableContract):
    compression = "none"

    def make(self, tmp_path: Path) -> FileDestination:
        return destination(tmp_path, format="csv", compression=self.compression)

    def ids(self, destination: AnyDestination) -> list[int]:
        files = sorted(destination.config.path.iterdir(), key=place)
        return [int(row["id"]) for file in files for row in csv.DictReader(io.StringIO(self.read(file), newline=""))]

    def read(self, path: Path) -> str:
        return path.read_bytes().decode()


class TestCsvGzip(TestCsv):
    compression = "gzip"

    def read(self, path: Path) -> str:
        return gzip.decompress(path.read_bytes()).decode()


def written_csv(tmp_path: Path, data: list[bytes], casts: Mapping[str, str] | None = None, **options: str) -> str:
    """The one file that these records become."""
    target = destination(tmp_path, format="csv", **options)
    target.write(batch(), Staging(target, tmp_path / "stage", casts).stage(data))
    (only,) = files(tmp_path)
    return only.read_bytes().decode()


@pytest.mark.parametrize(
    ("sent", "casts", "expected"),
    [
        ([{"a": {"b": 1}}, {"c": True}], {}, '"a_b","c"\n1,\n,true\n'),
        ([{"a": None, "b": 1}, {"a": "", "b": 2}, {"a": "null", "b": 3}], {}, '"b","a"\n1,\n2,""\n3,"null"\n'),
        ([{"a": 'say "x", \r\n twice'}], {}, '"a"\n"say ""x"", \r\n twice"\n'),
        ([{"a": [1, "x"], "b": 0.1}], {}, '"a","b"\n"[1,""x""]",0.1\n'),
        ([{"at": "2026-03-01T10:00:00+02:00"}], {"/at": "timestamp"}, '"at"\n"2026-03-01T08:00:00.000000Z"\n'),
        ([{"p": 12.5}], {"/p": "numeric(12,2)"}, '"p"\n12.50\n'),
        ([{"p": "dear"}], {"/p": "bigint"}, '"p","_unmapped"\n,"{""p"":""dear""}"\n'),
        ([{"Size of it": "日本語"}], {}, '"size_of_it"\n"日本語"\n'),
    ],
    ids=["columns", "null", "quotes", "array", "timestamp", "decimal", "unmapped", "utf8"],
)
def test_csv_has_a_header_and_tells_nulls_from_empty_text(
    sent: list[object], casts: dict[str, str], expected: str, tmp_path: Path
) -> None:
    assert written_csv(tmp_path, events(*sent), casts) == expected


TEXTS = st.text(st.sampled_from("ab ,;\"'\n\r\t\\é日\x00\x01"), max_size=6)


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), TEXTS, min_size=1), min_size=1, max_size=8))
def test_the_standard_reader_reads_back_what_csv_was_written(sent: list[dict[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = written_csv(Path(folder), events(*sent))
    read = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [{name: value for name, value in row.items() if value} for row in read] == [
        {name: value for name, value in row.items() if value} for row in sent
    ]


def test_a_field_that_changes_its_type_starts_a_new_csv_file(tmp_path: Path) -> None:
    target = destination(tmp_path, format="csv")
    target.write(batch(), Staging(target, tmp_path / "stage").stage(events({"a": 1}, {"a": 2}, {"a": "x"}), size=1))
    assert [file.read_text() for file in files(tmp_path)] == ['"a"\n1\n2\n', '"a"\n"x"\n']


def test_csv_can_hold_the_records_themselves(tmp_path: Path) -> None:
    target = destination(tmp_path, format="csv", columns="record", compression="zstd")
    when = datetime(2026, 3, 1, 8, tzinfo=UTC)
    sent = [
        Record(b'{"a":"x\\n"}', "web", headers={"token": 'site "1"', "endpoint": "js"}, timestamp=when),
        Record(None, "web", op=Op.DELETE, key="7", timestamp=when),
        Record(b"\xff!", "web", timestamp=when),
    ]
    stager = target.stager(tmp_path, {})
    stager.add(placed(entries(sent), 2, 40))
    target.write(batch(), stager.finish())
    (only,) = files(tmp_path)
    assert only.name.endswith(".csv.zst")
    with pa.input_stream(str(only), compression="zstd") as file:
        header, *rows = csv.reader(io.StringIO(file.read().decode(), newline=""))
    assert header == RECORD_SCHEMA.names
    at = "2026-03-01T08:00:00.000000Z"
    assert rows == [
        ["2", "40", at, "web", "insert", "sync", "", '{"token":"site \\"1\\"","endpoint":"js"}', '{"a":"x\\n"}', "0"],
        ["2", "41", at, "web", "delete", "sync", "7", "{}", "", "0"],
        ["2", "42", at, "web", "insert", "sync", "", "{}", "\ufffd!", "0"],
    ]


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_the_file_source_reads_what_csv_was_written(compression: str, tmp_path: Path) -> None:
    target = destination(tmp_path, format="csv", compression=compression)
    sent = events({"id": 1, "text": 'two\nlines, "quoted"'}, {"id": 2, "text": ""}, {"id": 3})
    target.write(batch(), Staging(target, tmp_path / "stage").stage(sent))
    source(tmp_path, "out").run(Event(), once=True)
    assert [json.loads(record.data or b"") for record in log_records(tmp_path / "log")] == [
        {"id": "1", "text": 'two\nlines, "quoted"'},
        {"id": "2", "text": ""},
        {"id": "3", "text": ""},
    ]
