"""``remap`` gives namespaces other names and changes nothing else."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from penstock.record import Record, entries, placed
from penstock.steps.chain import Chain, Link
from penstock.steps.contract import namespace_pattern
from penstock.steps.omit.config import OmitConfig
from penstock.steps.omit.step import Omit
from penstock.steps.remap.config import RemapConfig
from penstock.steps.remap.step import Remap
from penstock.testing.step import StepContract


class TestRemap(StepContract):
    name = "remap"
    reads_data = False
    changes = "namespace"
    configs: ClassVar[list[Any]] = [{"shop": "store"}, {"namespaces": {"/^s(.)/": r"\1"}}, {"other": "x"}]


@pytest.mark.parametrize(
    ("namespaces", "old", "new"),
    [
        ({"a": "b"}, "a", "b"),
        ({"a": "b"}, "ab", "ab"),
        ({"a": "b", "b": "a"}, "b", "a"),
        ({"a.b": "x"}, "axb", "axb"),
        ({"/^old_/": "new_"}, "old_orders", "new_orders"),
        ({r"/_v\d+$/": ""}, "orders_v12", "orders"),
        ({r"/^public\.(.*)$/": r"shop.\1"}, "public.orders", "shop.orders"),
        ({r"/(?P<a>\w+)\.(\w+)/": r"\2/\g<a>"}, "x.y", "y/x"),
        ({"/(a)|(b)/": r"[\1\2]"}, "b", "[b]"),
        ({"/x/": r"\\n"}, "x", r"\\n"),
        ({"/a/": "1", "/b/": "2"}, "ab", "1b"),
        ({"/a/": "1", "a": "exact"}, "a", "exact"),
        ({"/a/": "b"}, "aa", "ba"),
        ({"/": "root"}, "/", "root"),
        ({"": "unnamed"}, "", "unnamed"),
        ({"namespace": "x"}, "namespace", "x"),
    ],
)
def test_a_namespace_gets_its_new_name(namespaces: dict[str, str], old: str, new: str) -> None:
    batch = placed(entries([Record(b"{}", old), Record(b"{}", "quite other")]), 0, 0)
    outcome = Remap(RemapConfig.model_validate(namespaces)).apply(batch)
    assert outcome.kept.column("namespace").to_pylist() == [new, "quite other"]


@pytest.mark.parametrize(
    ("namespaces", "words"),
    [
        ({}, "at least 1"),
        ({"/(/": "x"}, "is not a regular expression"),
        ({"/^ORD/i": "x"}, r"has flags after its last slash.*Write '/\(\?i\)\^ORD/'"),
        ({"/(a)/": r"\2"}, "names the group 2"),
        ({"/(a)/": r"\g<who>"}, "names the group who"),
    ],
)
def test_a_map_that_cannot_work_is_refused(namespaces: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        RemapConfig.model_validate(namespaces)


def test_steps_behind_it_go_by_the_new_name() -> None:
    remap = Link("remap", Remap(RemapConfig.model_validate({"usr": "users"})))
    omit = Link("omit", Omit(OmitConfig.model_validate(["ssn"])), namespace_pattern("^users$"))
    batch = placed(entries([Record(b'{"ssn":1}', "usr"), Record(b'{"ssn":1}', "orders")]), 0, 0)
    assert Chain([remap, omit]).run(batch).kept.column("data").to_pylist() == [b"{}", b'{"ssn":1}']
