"""What an engine's JSON cannot hold is kept as text in its place."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.sql.load.readable_json import readable_json


def readable(text: str | None, takes_nul: bool = False) -> str | None:
    (found,) = readable_json(pa.array([text], pa.string()), takes_nul).to_pylist()
    assert found is None or isinstance(found, str)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ('{"a":"x","b":[1.50]}', '{"a":"x","b":[1.50]}'),
        (r'{"a":"x\u0000","b":2.50}', r'{"a":"x\\u0000","b":2.50}'),
        (r'{"a":"\\u0000"}', r'{"a":"\\u0000"}'),
        (r'{"a":"\ud83d\ude00\ud83d"}', r'{"a":"\ud83d\ude00\\ud83d"}'),
        (r'{"a":["\udc00",{"b":"\ud800x"}],"c":1}', r'{"a":["\\udc00",{"b":"\\ud800x"}],"c":1}'),
        (r'{"\ud800":1}', r'{"\\ud800":1}'),
        ('{"a":1e200000,"b":[1e-99999]}', '{"a":"1e200000","b":["1e-99999"]}'),
        ('{"a":["e12345",1e99999],"1e99999":"0.1e99999"}', '{"a":["e12345","1e99999"],"1e99999":"0.1e99999"}'),
        ('{"a":1e400,"b":"1e99999","c":1e00005}', '{"a":1e400,"b":"1e99999","c":1e00005}'),
        ("1e200000", '"1e200000"'),
        (r'["\ud800"]', r'["\\ud800"]'),
        (r'"\u0000"', r'"\\u0000"'),
    ],
)
def test_only_what_cannot_be_held_is_written_otherwise(text: str | None, expected: str | None) -> None:
    assert readable(text) == expected


def test_nul_stays_where_the_engine_takes_it() -> None:
    assert readable(r'{"a":"\u0000"}', takes_nul=True) == r'{"a":"\u0000"}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'{"\u0000":1,"\\u0000":2}', r'{"\\u0000":1,"\\u0000#":2}'),
        (r'{"\\ud800#":1,"\ud800":2,"\\ud800":3}', r'{"\\ud800#":1,"\\ud800":2,"\\ud800##":3}'),
        (r'{"a":{"\u0000":1,"\\u0000":2}}', r'{"a":"{\"\\\\u0000\":1,\"\\\\u0000\":2}"}'),
    ],
)
def test_names_that_meet_are_told_apart(text: str, expected: str) -> None:
    (found,) = readable_json(pa.array([text]), takes_nul=False, keeps_repeats=False).to_pylist()
    assert found == expected


@given(st.dictionaries(st.text(max_size=3), st.text(st.characters(exclude_categories=[]), max_size=6), max_size=4))
def test_every_member_stays_under_its_name_and_can_be_stored(members: dict[str, str]) -> None:
    found = json.loads(readable(json.dumps(members)) or "")
    assert len(found) == len(members)
    for text in (*found, *found.values()):
        text.encode()
        assert "\0" not in text
