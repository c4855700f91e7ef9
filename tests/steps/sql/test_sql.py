"""``sql`` makes of each record what the query says, and of nothing else."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from penstock.steps.sql.config import SqlConfig
from penstock.steps.sql.step import Sql
from penstock.testing.step import DOCUMENTS, StepContract, batch_of, failed, kept


class TestSql(StepContract):
    name = "sql"
    configs: ClassVar[list[Any]] = [
        "select a, b + 1 as c, user.name where price > 0 or a is null",
        {"query": "select *, upper(name) as `user.name`"},
        "select * except (a, user.name) from records",
        "select 1 as one",
    ]


def run(query: str, *data: bytes) -> Any:
    return Sql(SqlConfig.model_validate(query)).apply(batch_of(*data))


CASES: list[tuple[str, bytes, bytes]] = [
    ("select a", b'{"a":1.50,"b":2}', b'{"a":1.50}'),
    ("select b, a from records", b'{"a":[1 , 2],"b":{"x":"\\u00e9"}}', b'{"b":{"x":"\\u00e9"},"a":[1 , 2]}'),
    ("SELECT user.name, user.age AS years", b'{"user":{"name":"ada","age":36}}', b'{"name":"ada","years":36}'),
    ("select price * q as total", b'{"price":12.5,"q":2}', b'{"total":25.0}'),
    ("select a as `x.y`, b as `x.z`", b'{"a":1,"b":2}', b'{"x":{"y":1,"z":2}}'),
    ("select a as `x\\.y`", b'{"a":1}', b'{"x.y":1}'),
    ("select b as a, a as b", b'{"a":1,"b":2}', b'{"a":2,"b":1}'),
    ("select *, b as a, a as b", b'{"a":1,"b":2}', b'{"a":2,"b":1}'),
    ("select *", b' {"a": 1.0} ', b' {"a": 1.0} '),
    ("select * except (a, o.x), 7 as n", b'{"a":1,"o":{"x":1,"y":2}}', b'{"o":{"y":2},"n":7}'),
    ("select missing", b"{}", b'{"missing":null}'),
    ("select case when a > 1 then 'big' else 'small' end as size", b'{"a":"10"}', b'{"size":"big"}'),
    ("select record.op, record.headers.token as t", b"{}", b'{"op":"insert","t":"site"}'),
    ("select `a b`", b'{"a b":1}', b'{"a b":1}'),
]


@pytest.mark.parametrize(("query", "data", "expected"), CASES)
def test_a_record_becomes_what_is_selected(query: str, data: bytes, expected: bytes) -> None:
    outcome = run(query, data)
    assert (kept(outcome), outcome.skipped) == ([expected], 0)


def test_what_the_condition_is_not_true_for_is_skipped_and_what_fails_fails_alone() -> None:
    data = [b'{"n":1,"o":{}}', b'{"n":10.0,"o":7}', b"{", b'{"n":1e1,"o":{}}', b'{"o":7}', b'{"n":"10","o":null}']
    outcome = run("select *, n as `o.n` where n = 10", *data)
    assert kept(outcome) == [b'{"n":1e1,"o":{"n":1e1}}', b'{"n":"10","o":{"n":"10"}}']
    assert outcome.skipped == 2
    assert sorted(failed(outcome)) == [(101, "path_blocked"), (102, "not_json")]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "cannot be read|is not a select|No expression"),
        ("price > 1", "is not a select"),
        ("delete from records", "is not a select"),
        ("select a from orders", "the only table is records"),
        ("select a from records join b", "'joins' is not supported"),
        ("select a limit 3", "'limit' is not supported"),
        ("select distinct a", "'distinct' is not supported"),
        ("select a group by a", "'group' is not supported"),
        ("select a, b as a", "two values go to /a"),
        ("select a + 1", "needs a name"),
        ("select a, *", r"\* stands once, and first"),
        ("select sum(a) as s", "is not supported"),
        ("select (select 1) as s", "is not supported"),
        ("select a as `x..y`", "has no usable name"),
        ("select 'a", "never closed"),
        ("select a; select b", "cannot be read|not a select|Invalid"),
    ],
)
def test_what_a_query_cannot_say_is_refused(query: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        SqlConfig.model_validate(query)


@settings(max_examples=80)
@given(DOCUMENTS)
def test_plain_fields_come_through_as_they_are(document: bytes) -> None:
    value = json.loads(document)
    (made,) = kept(run("select a, `x.y` as other, user.name", document))
    user = value.get("user")
    name = user.get("name") if isinstance(user, dict) else None
    assert json.loads(made) == {"a": value.get("a"), "other": value.get("x.y"), "name": name}
