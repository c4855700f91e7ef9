"""What mirrored tables and columns are called, and what a config may say about it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.destinations.bigquery.config import BigqueryConfig
from penstock.destinations.clickhouse.config import ClickhouseConfig
from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.redshift.config import RedshiftConfig
from penstock.destinations.snowflake.config import SnowflakeConfig
from penstock.destinations.sql.mirror.stage.mirror_names import MirrorTableChooser, column_names


@pytest.mark.parametrize(
    ("template", "namespace", "table"),
    [
        ("{{ table }}", "public.users", "users"),
        ("{{ table }}", "users", "users"),
        ("{{ table }}", 'sales."Line Items"', "_line_items_"),
        ("{{ namespace }}", "sales.users", "sales_users"),
        ("{{ schema }}__{{ table }}", "sales.users", "sales__users"),
        ("{% if schema == 'public' %}{{ table }}{% endif %}", "sales.users", ""),
        ("fixed", "sales.users", "fixed"),
    ],
)
def test_a_table_is_named_by_its_namespace(template: str, namespace: str, table: str) -> None:
    assert MirrorTableChooser(template, 63).table(namespace).table == table


def test_a_name_of_penstock_s_own_is_refused() -> None:
    choice = MirrorTableChooser("{{ table }}", 63).table("public._penstock_loads")
    table, problem = choice.table, choice.problem
    assert (table, "a table of Penstock's own" in problem) == ("", True)


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (["id", "Name"], ["id", "name"]),
        (["name", "Name"], ["name", "name_"]),
        (["Name", "NAME"], ["name_", "name_"]),
        (["a b", "a_b", "a-b"], ["a_b_", "a_b", "a_b_"]),
        ([""], ["_unnamed"]),
    ],
)
def test_no_column_is_taken_for_another(sources: list[str], names: list[str]) -> None:
    found = column_names(sources, 63)
    assert [name if name in names else name[:-8] for name in found.values()] == names
    assert len(set(found.values())) == len(sources)


@pytest.mark.parametrize(
    ("sources", "taken", "names"),
    [
        (["Name"], {"name": "Name"}, ["name"]),
        (["Name", "name"], {"name": "Name"}, ["name", "name_"]),
        (["name"], {"name": "Name"}, ["name_"]),
        (["NAME"], {"name": "name"}, ["name_"]),
        (["дата"], {"____": "ключ"}, ["_____"]),
    ],
)
def test_a_name_that_is_settled_stays(sources: list[str], taken: dict[str, str], names: list[str]) -> None:
    found = column_names(sources, 63, taken)
    assert [name if (name := found[source]) in names else name[:-8] for source in sources] == names


def test_names_stay_short_enough_and_apart() -> None:
    long = ["x" * 100, "X" * 100, "x" * 99 + "y"]
    found = column_names(long, 63)
    assert max(map(len, found.values())) <= 63
    assert len(set(found.values())) == 3


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"load": "mirror", "version_column": "v", "primary_key": ["id"]}, "follows the order of the log"),
        ({"load": "mirror", "table": "{{ event_type }}"}, "not by event_type"),
        ({"load": "append", "primary_key": ["id"]}, "never updates a row"),
        ({"load": "merge"}, "needs a primary_key"),
        ({"load": "replace"}, "append"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        DuckdbConfig.model_validate({"path": "x.duckdb", **options})


@pytest.mark.parametrize(
    ("options", "template"),
    [
        ({}, "events"),
        ({"load": "append"}, "events"),
        ({"load": "merge", "primary_key": ["id"]}, "events"),
        ({"load": "mirror"}, "{{ table }}"),
        ({"load": "mirror", "table": "users"}, "users"),
    ],
)
def test_the_table_has_a_name_if_nothing_is_said(options: dict[str, Any], template: str) -> None:
    assert DuckdbConfig.model_validate({"path": "x.duckdb", **options}).table_template == template


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (ClickhouseConfig, {"url": "clickhouse://h/d"}),
        (SnowflakeConfig, {"account": "a", "user": "u", "password": "p", "database": "d", "warehouse": "w"}),
        (RedshiftConfig, {"url": "postgresql://h/d", "staging": "s3://b/p"}),
        (BigqueryConfig, {"project": "project", "dataset": "d"}),
    ],
)
def test_engines_that_cannot_mirror_say_so_at_once(config: Any, options: dict[str, Any]) -> None:
    config.model_validate(options)
    with pytest.raises(ValidationError, match="cannot mirror tables; duckdb and postgres can"):
        config.model_validate({**options, "load": "mirror"})
