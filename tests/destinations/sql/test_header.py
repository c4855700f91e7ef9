from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.sql.stage.file_header import decode, encode, merge
from penstock.flatten.column import Column
from penstock.flatten.inner_types import InnerType, promote

columns = st.builds(
    Column,
    name=st.sampled_from(["a", "b", "c"]),
    paths=st.sampled_from([("/a",), ("/b/c", "/B/c"), ()]),
    type=st.sampled_from(InnerType),
    sql_type=st.sampled_from([None, "numeric(12,2)"]),
)
headers = st.lists(columns, max_size=3, unique_by=lambda column: column.name)


@given(headers)
def test_a_header_travels_as_text(header: list[Column]) -> None:
    assert decode(encode(header)) == tuple(header)


@given(st.lists(headers, max_size=4))
def test_a_merged_column_holds_the_values_of_every_file(files: list[list[Column]]) -> None:
    merged = {column.name: column for column in merge(files)}
    for column in (column for header in files for column in header):
        assert promote(merged[column.name].type, column.type) == merged[column.name].type
        assert merged[column.name].sql_type == "numeric(12,2)" or column.sql_type is None
    assert list(merged) == list(dict.fromkeys(column.name for header in files for column in header))


def test_a_merged_column_remembers_every_path() -> None:
    one = Column("a", ("/a",), InnerType.INT64)
    other = Column("a", ("/A", "/a"), InnerType.INT64)
    assert merge([[one], [other]])[0].paths == ("/a", "/A")
