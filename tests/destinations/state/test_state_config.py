"""A mistake in the options of state is found before anything runs, and says which key is wrong and what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.config.loading import load
from penstock.conflation.kinds import Match, Sync
from penstock.destinations.state.config import StateConfig
from penstock.errors import PenstockError

CLUSTERS = {"name": "clusters", "priority": 0, "table": "clusters", "rows": "/items", "key": ["id"]}
POLICIES = {**CLUSTERS, "name": "policies", "priority": 1, "table": "policies"}
CHANGES = {"sync": "delta", "depends_on": "clusters", "table": "clusters"}


def read(*kinds: dict[str, Any], **options: Any) -> StateConfig:
    return StateConfig.model_validate({"path": "state.duckdb", "kinds": kinds, **options})


def test_what_is_not_said_has_a_sensible_value() -> None:
    config = read(CLUSTERS, {**POLICIES, "depends_on": "clusters"})
    assert (config.workers, config.inactive_after, config.on_inactive) == (10, 300.0, "keep")
    kind = config.declared["policies"]
    assert kind.sync is Sync.COMPLETE
    assert kind.depends_on is not None
    assert (kind.depends_on.kind, kind.depends_on.match, kind.depends_on.implicit) == ("clusters", Match.EXACT, False)


@pytest.mark.parametrize(
    ("kinds", "options", "message"),
    [
        ([CLUSTERS], {"url": "postgresql://a@b/c"}, "both are given; remove one"),
        ([CLUSTERS], {"path": None}, "neither is given"),
        ([], {}, "kinds"),
        ([CLUSTERS, CLUSTERS], {}, "kinds: the kind 'clusters' is declared twice"),
        ([{**CLUSTERS, "depends_on": "gone"}], {}, "depends on 'gone', which is not declared"),
        ([{**CLUSTERS, "sync": "delta"}], {}, "say in depends_on which kind it changes"),
        ([CLUSTERS, {**POLICIES, "priority": 0, "depends_on": "clusters"}], {}, "give it a higher priority number"),
        ([CLUSTERS, {**POLICIES, "group": "b", "depends_on": "clusters"}], {}, "which is in another group"),
        (
            [CLUSTERS, {**POLICIES, "sync": "delta", "depends_on": {"kind": "clusters", "implicit": True}}],
            {},
            "implicit is wrong",
        ),
        ([{**CLUSTERS, "key": []}], {}, "key"),
        ([{**CLUSTERS, "key": [""]}], {}, "write key: [id]"),
        ([{**CLUSTERS, "key": ["id", "id"]}], {}, "name each once"),
        ([{**CLUSTERS, "key": ["source", "id"]}], {}, "the source is part of every key"),
        ([{**CLUSTERS, "rows": "/items//x"}], {}, "write it as /items"),
        ([{**CLUSTERS, "sync": "partial"}], {}, "'complete', 'delta' or 'hybrid'"),
        ([{**CLUSTERS, "prio": 1}], {}, "prio"),
        (
            [CLUSTERS, {**POLICIES, "sync": "delta", "depends_on": "clusters", "table": "clusters", "key": ["name"]}],
            {},
            "give them the same key",
        ),
        ([CLUSTERS, {**POLICIES, "table": "clusters"}], {}, "each would delete the rows of the other"),
        ([CLUSTERS, {**POLICIES, "table": "Clusters"}], {}, "each would delete the rows of the other"),
        ([CLUSTERS, {**POLICIES, "table": "clusters", "sync": "hybrid", "group": "b"}], {}, "put them in one group"),
        (
            [CLUSTERS, {**POLICIES, "sync": "delta", "depends_on": "clusters"}],
            {},
            "and another table; give it the same",
        ),
        (
            [{**CLUSTERS, "sync": "hybrid"}, {**POLICIES, **CHANGES}],
            {},
            "'clusters', which it changes, is hybrid: only a complete bundle has all",
        ),
        ([{**CLUSTERS, "key": ["id", "/ID"]}], {}, "name each once"),
        ([{**CLUSTERS, "key": ["/Source"]}], {}, "the source is part of every key"),
        ([{**CLUSTERS, "name": "a\x1fb"}], {}, "no bundle can be of this kind"),
        ([{**CLUSTERS, "table": "é" * 32}], {}, "at most 63 bytes"),
        ([{**CLUSTERS, "table": "a\0"}], {}, "none of them a control character"),
        ([{**CLUSTERS, "table": "Transport"}], {}, "is one that Penstock keeps itself; give the kind another table"),
        ([CLUSTERS], {"workers": 0}, "workers"),
        ([CLUSTERS], {"max_attempts": 0}, "max_attempts"),
        ([CLUSTERS], {"on_inactive": "burn"}, "'keep', 'mark' or 'delete'"),
        ([CLUSTERS], {"url": "mysql://a@b/c", "path": None}, "not a PostgreSQL address"),
    ],
)
def test_a_mistake_names_the_key_and_the_fix(kinds: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        read(*kinds, **options)
    assert message in str(caught.value)


def test_postgres_tells_tables_apart_by_capitals_and_keys_may_be_spelled_as_paths() -> None:
    address = {"path": None, "url": "postgresql://a@b/c"}
    read(CLUSTERS, {**POLICIES, "table": "Clusters"}, **address)
    read(CLUSTERS, {**POLICIES, **CHANGES, "key": ["/id"]})


def test_a_route_that_keeps_state_cannot_stop_before_a_record(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "name: fleet\nsources: {hubs: {type: file, path: ./hubs.ndjson}}\nroutes:\n  state:\n    from: hubs\n"
        "    on_error: stop\n    to:\n      type: state\n      path: ./state.duckdb\n"
        "      kinds: [{name: clusters, priority: 0, table: clusters, rows: /items, key: [id]}]\n"
    )
    with pytest.raises(PenstockError, match="so the route cannot stop before one"):
        load(path)
