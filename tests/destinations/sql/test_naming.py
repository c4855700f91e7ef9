import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.destinations.sql.stage.table_name import TableChooser

TIME = "2024-05-01T10:00:00.000000Z"


def chosen(template: str | TableChooser, *documents: object) -> list[str | None]:
    """Per document its table; ``None`` if it is skipped, ``!`` and the problem if it fails."""
    data = pa.array([item if isinstance(item, bytes) else json.dumps(item).encode() for item in documents], pa.binary())
    found: list[str | None] = ["unset"] * len(documents)
    names = TableChooser(template, 63) if isinstance(template, str) else template
    for choice in names.choose(data):
        rows = np.arange(len(documents)) if choice.rows is None else choice.rows
        for row in rows:
            assert found[row] == "unset"
            found[row] = choice.table or (f"!{choice.problem}" if choice.problem else None)
    return found


@pytest.mark.parametrize(
    ("template", "document", "table"),
    [
        ("events", {"a": 1}, "events"),
        ("My Events", {"a": 1}, "my_events"),
        ("{{ event_type }}", {"event_type": "Page View"}, "page_view"),
        ("{{ event_type }}", {"event_type": 7}, "7"),
        ("{{ event_type }}", {"event_type": True}, "true"),
        ("{{ event_type }}", {"event_type": "\ud800x"}, "_x"),
        ("{{ event_type }}", {"event_type": None}, None),
        ("{{ event_type }}", {"event_type": "  "}, None),
        ("{{ event_type }}", {"other": 1}, None),
        ("{{ ctx.kind.name }}", {"ctx": {"kind": {"name": "x"}}}, "x"),
        ("{{ ctx.kind.name }}", {"ctx": 7}, None),
        ("{{ ctx.items }}", {"ctx": {"items": "x"}}, "x"),
        ("{{ ctx.items }}", {"ctx": {}}, None),
        ("{{ ctx.items }}_{{ ctx }}", {"ctx": {"items": "x"}}, "!the table template failed: a name is made of text"
         " and numbers, not of a dict"),
        ("web_{{ a }}_{{ b }}", {"a": "x", "b": "y"}, "web_x_y"),
        ("{{ event_type }}_{{ _timestamp.strftime('%Y_%m') }}", {"event_type": "a", "_timestamp": TIME}, "a_2024_05"),
        ("y{{ _timestamp.year }}", {"_timestamp": TIME}, "y2024"),
        ("{{ a | lower }}", {"a": "ABC"}, "abc"),
        ("{{ a or 'none' }}", {}, "none"),
        ("{% if a > 1 %}big{% else %}small{% endif %}", {"a": 5}, "big"),
        ("{{ a['b c'] }}", {"a": {"b c": "x"}}, "x"),
        ("{{ namespace }}", {}, None),
    ],
)  # fmt: skip
def test_a_record_goes_where_its_data_says(template: str, document: object, table: str | None) -> None:
    assert chosen(template, document) == [table]


@pytest.mark.parametrize(
    ("template", "document"),
    [
        ("{{ _timestamp.strftime('%Y') }}", {"_timestamp": "yesterday"}),
        ("{{ _timestamp.strftime('%Y') }}", {}),
        ("{{ a }}", {"a": [1]}),
        ("{{ a + 1 }}", {"a": "x"}),
        ("{{ a }}", {"a": "_penstock_batches"}),
    ],
)
def test_a_template_that_fails_for_a_record_says_why(template: str, document: object) -> None:
    (table,) = chosen(template, document)
    assert table is not None
    assert table.startswith("!")
    assert len(table) > 10


def test_rows_of_a_table_stay_together_and_in_order() -> None:
    kinds = ["a", "b", "a", "c", "A", "b"]
    assert chosen("{{ k }}", *({"k": kind} for kind in kinds)) == ["a", "b", "a", "c", "a", "b"]


def test_data_that_is_no_object_is_left_to_flattening() -> None:
    tables = chosen("{{ k }}", {"k": "a"}, b"nope", b"[1]", b"7")
    assert tables[0] == "a"
    assert all(table and not table.startswith("!") for table in tables[1:])


@pytest.mark.parametrize("template", ["{{ a", "{% if %}", "{{ '' }}", "  ", "_penstock_batches"])
def test_a_template_that_can_never_work_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"template|table name"):
        TableChooser(template, 63)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["x", "y", None]), st.integers(0, 3), st.booleans()), max_size=30))
def test_many_records_at_once_are_the_same_as_one_by_one(rows: list[tuple[str | None, int, bool]]) -> None:
    documents = [{"a": a, "b": {"c": b}} if whole else {"a": a} for a, b, whole in rows]
    template = TableChooser("{{ a }}{{ b.c }}", 63)
    assert chosen(template, *documents) == [chosen(template, document)[0] for document in documents]
