from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.destinations.contract import Part
from penstock.destinations.sql.stage.file_header import decode
from penstock.destinations.sql.stage.table_files import FILE_ROWS, TableFiles, create_arrow_file
from penstock.flatten.column import Column
from penstock.flatten.inner_types import InnerType

Row = dict[str, int | str]


def append(files: TableFiles, offset: int, row: Row) -> None:
    columns = [
        Column(name, (f"/{name}",), InnerType.INT64 if isinstance(value, int) else InnerType.STRING)
        for name, value in row.items()
    ]
    table = pa.table({column.name: pa.array([row[column.name]], column.type.arrow) for column in columns})
    places = pa.RecordBatch.from_pylist([{"partition": 0, "offset": offset}])
    files.append(table.append_column("@offset", pa.array([offset])), columns, places)


def read(part: Part) -> list[dict[str, object]]:
    with pa.memory_map(part.path) as file:
        rows: list[dict[str, object]] = pa.ipc.open_file(file).read_all().to_pylist()
    return rows


def test_columns_that_come_and_go_share_a_file(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, "t", create_arrow_file)
    rows: list[Row] = [{"a": 1}, {"b": "x"}, {"a": 2, "b": "y"}]
    for offset, row in enumerate(rows):
        append(files, offset, row)
    (part,) = files.finish()
    assert [column.name for column in decode(part.header)] == ["a", "b"]
    assert [(row["a"], row["b"]) for row in read(part)] == [(1, None), (None, "x"), (2, "y")]


def test_a_file_ends_when_it_is_full_also_in_the_middle_of_a_piece(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, "t", create_arrow_file)
    count = 2 * FILE_ROWS + 10
    column = Column("a", ("/a",), InnerType.INT64)
    places = pa.record_batch({"partition": pa.repeat(3, count), "offset": pa.array(range(count))})
    files.append(pa.table({"a": pa.array(range(count))}), [column], places)
    parts = files.finish()
    assert [(part.partition, part.first_offset, part.rows) for part in parts] == [
        (3, 0, FILE_ROWS), (3, FILE_ROWS, FILE_ROWS), (3, 2 * FILE_ROWS, 10)
    ]  # fmt: skip
    assert [row["a"] for part in parts for row in read(part)] == list(range(count))


rows = st.dictionaries(st.sampled_from("abc"), st.one_of(st.integers(0, 9), st.sampled_from("xyz")), min_size=1)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(rows, st.booleans()), max_size=12))
def test_whatever_the_columns_no_row_is_lost_or_moved(tmp_path_factory: object, steps: list[tuple[Row, bool]]) -> None:
    directory = tmp_path_factory.mktemp("files")  # type: ignore[attr-defined]
    files = TableFiles(directory, "t", create_arrow_file)
    for offset, (row, flush) in enumerate(steps):
        append(files, offset, row)
        if flush:
            files.flush()
    parts = files.finish()
    found = [{k: v for k, v in row.items() if v is not None} for part in parts for row in read(part)]
    assert found == [{**row, "@offset": offset} for offset, (row, _) in enumerate(steps)]
    assert [part.rows for part in parts] == [len(read(part)) for part in parts]
    assert [part.first_offset for part in parts] == [read(part)[0]["@offset"] for part in parts]
