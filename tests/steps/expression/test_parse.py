"""Reading expressions: what pipelines without one do not pay for, and trees that can be told apart."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.steps.expression.parse import parse
from penstock.steps.expression.tree import Call, Field, Literal, RecordField, fields

HEAVY = "pyarrow numba numpy sqlglot"


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("from penstock.steps.omit.config import OmitConfig as C; C.model_validate(['a'])", ""),
        ("from penstock.steps.map.config import MapConfig as C; C.model_validate({})", ""),
        ("from penstock.steps.where.config import WhereConfig", ""),
        ("from penstock.steps.where.config import WhereConfig as C; C.model_validate('a > 1')", "sqlglot"),
        ("from penstock.steps.set.config import SetConfig as C; C.model_validate({'a': 'b'})", "sqlglot"),
    ],
)
def test_checking_a_config_loads_no_more_than_it_needs(code: str, loaded: str) -> None:
    script = f"{code}\nimport sys\nprint(*(name for name in '{HEAVY}'.split() if name in sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == loaded


def test_a_tree_names_the_fields_that_it_reads_once() -> None:
    tree = parse("a.b > 1 and a.b < c and record.op = 'x' and `x.y` is null")
    assert fields(tree) == [("a", "b"), ("c",), ("x.y",)]


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("price", Field(("price",))),
        ("`a.b`.c['d e']", Field(("a.b", "c", "d e"))),
        ("record.headers.token", RecordField("headers", "token")),
        ("-5", Literal(-5)),
        ("1.50", Literal(1.5)),
        ("'it\\'s'", Literal("it's")),
        ("((a))", Field(("a",))),
        ("a is not null", Call("not", (Call("isnull", (Field(("a",)),)),))),
        ("a between 1 and 2", parse("a >= 1 and a <= 2")),
        ("if(a, 1, 2)", parse("case when a then 1 else 2 end")),
        ("ifnull(a, 1)", parse("coalesce(a, 1)")),
        ("substr(a, 2, 3)", parse("substring(a, 2, 3)")),
        ("a::int", parse("cast(a as integer)")),
        ("a or b and c", parse("a or (b and c)")),
    ],
)
def test_text_becomes_a_tree(text: str, tree: object) -> None:
    assert parse(text) == tree
