"""Each rule of the architecture names what breaks it, however it is written."""

from __future__ import annotations

import pytest

from tests.test_architecture import (
    COMPUTED,
    Module,
    Rule,
    calls_back,
    classes_derived_from_the_log,
    foreign_vendors,
    heavy_config,
    libraries_outside_their_rooms,
    modules,
    patches,
    questions_of_kind,
    shared_names,
    unlisted_sideways_imports,
    upward_imports,
)

OF_SQL = "from penstock.destinations.sql.destination import SqlDestination"

PLANTED: list[tuple[Rule, str, str, str]] = [
    (upward_imports, "json/x.py", "import penstock.engine.pipeline", "engine.pipeline"),
    (upward_imports, "json/x.py", "import penstock.engine as e", "engine"),
    (upward_imports, "json/x.py", "import penstock", "the whole package"),
    (upward_imports, "json/x.py", "from penstock import engine", "engine"),
    (upward_imports, "json/x.py", "from penstock import Pipeline", "engine.pipeline.Pipeline"),
    (upward_imports, "json/x.py", "from penstock import *", "*"),
    (upward_imports, "json/x.py", "from ..engine import pipeline", "engine.pipeline"),
    (upward_imports, "json/x.py", "from .. import engine", "engine"),
    (upward_imports, "json/__init__.py", "from ..engine import pipeline", "engine.pipeline"),
    (upward_imports, "errors.py", "from . import log", "log"),
    (upward_imports, "log/format/x.py", "from ...cli.main import main", "cli.main.main"),
    (upward_imports, "config/x.py", "from penstock.log.config_of_mine import X", "log.config_of_mine.X"),
    (upward_imports, "json/x.py", "def f(): from penstock.engine import pipeline", "engine.pipeline"),
    (
        upward_imports,
        "json/x.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING: from penstock.engine import pipeline",
        "engine.pipeline",
    ),
    (upward_imports, "json/x.py", "import importlib; importlib.import_module('penstock.engine')", "engine"),
    (libraries_outside_their_rooms, "log/x.py", "import numba", "numba"),
    (libraries_outside_their_rooms, "log/x.py", "import importlib; importlib.import_module('numba')", "numba"),
    (libraries_outside_their_rooms, "log/x.py", "import importlib as i; i.import_module(name='numba')", "numba"),
    (libraries_outside_their_rooms, "log/x.py", "from importlib import import_module as f; f('numba.np')", "numba"),
    (libraries_outside_their_rooms, "log/x.py", "__import__('numba')", "numba"),
    (libraries_outside_their_rooms, "log/x.py", "from importlib import import_module as f; f(name)", COMPUTED),
    (libraries_outside_their_rooms, "log/x.py", "from importlib import import_module as f; f('.x', 'numba')", COMPUTED),
    (
        libraries_outside_their_rooms,
        "log/x.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING: ...\nelse: import numba",
        "numba",
    ),
    (libraries_outside_their_rooms, "engine/delivery/task.py", "from pyspark.sql import Row", "pyspark"),
    (libraries_outside_their_rooms, "engine/delivery/task.py", "import sqlalchemy as sa", "sqlalchemy"),
    (libraries_outside_their_rooms, "demo/sender.py", "import duckdb", "duckdb"),
    (libraries_outside_their_rooms, "destinations/duckdb/session.py", "import psycopg", "psycopg"),
    (
        unlisted_sideways_imports,
        "destinations/duckdb/x.py",
        "from penstock.destinations.snowflake.dialect import Snowflake",
        "destinations.snowflake.dialect.Snowflake",
    ),
    (
        unlisted_sideways_imports,
        "destinations/duckdb/x.py",
        "from penstock.destinations import snowflake",
        "destinations.snowflake",
    ),
    (unlisted_sideways_imports, "destinations/duckdb/x.py", "from ..ga4 import client", "destinations.ga4.client"),
    (
        unlisted_sideways_imports,
        "destinations/redshift/x.py",
        "from penstock.destinations.postgres import session",
        "destinations.postgres.session",
    ),
    (
        unlisted_sideways_imports,
        "destinations/postgres/x.py",
        "from penstock.sources.postgres.connection import connect",
        "sources.postgres.connection.connect",
    ),
    (
        unlisted_sideways_imports,
        "destinations/x.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING: from penstock.destinations.file import config",
        "destinations.file.config",
    ),
    (unlisted_sideways_imports, "destinations/sql/x.py", "import penstock.destinations.ga4", "destinations.ga4"),
    (unlisted_sideways_imports, "steps/x.py", "from penstock.log.reader import Reader", "log.reader.Reader"),
    (unlisted_sideways_imports, "log/x.py", "from penstock.sources.contract import Source", "sources.contract.Source"),
    (unlisted_sideways_imports, "sources/http/x.py", "from penstock.log import recovery", "log.recovery"),
    (unlisted_sideways_imports, "engine/x.py", "from penstock.sources.http import config", "sources.http.config"),
    (foreign_vendors, "engine/x.py", "g(postgres=True)", "postgres"),
    (foreign_vendors, "engine/x.py", "async def to_snowflake(): ...", "snowflake"),
    (foreign_vendors, "engine/x.py", "import x as duckdb_of_mine", "duckdb"),
    (foreign_vendors, "engine/x.py", "from x import y as ClickHouse", "clickhouse"),
    (foreign_vendors, "engine/x.py", "from ..destinations import redshift", "redshift"),
    (foreign_vendors, "engine/x.py", "x = f'{y} in BigQuery'", "bigquery"),
    (foreign_vendors, "engine/x.py", "x = b'postgres'", "postgres"),
    (foreign_vendors, "engine/x.py", "def f():\n global duckdb", "duckdb"),
    (foreign_vendors, "engine/x.py", "try: ...\nexcept E as postgres: ...", "postgres"),
    (foreign_vendors, "engine/x.py", "match x:\n case {'a': 1, **redshift}: ...", "redshift"),
    (foreign_vendors, "engine/x.py", "match x:\n case Y(postgres=1): ...", "postgres"),
    (foreign_vendors, "engine/postgres_ways.py", "", "postgres"),
    (foreign_vendors, "destinations/duckdb/x.py", "SNOWFLAKE = 1", "snowflake"),
    (foreign_vendors, "sources/postgres/x.py", "x = 'redshift'", "redshift"),
    (foreign_vendors, "destinations/redshift/x.py", "x = 'snowflake'", "snowflake"),
    (foreign_vendors, "demo/x.py", "x = 'snowflake'", "snowflake"),
    (questions_of_kind, "engine/x.py", "isinstance(d, SqlDestination)", "isinstance(d, SqlDestination)"),
    (questions_of_kind, "cli/x.py", "isinstance(d, (A, sql.SqlDestination))", "isinstance(d, (A, sql.SqlDestination))"),
    (questions_of_kind, "engine/x.py", f"{OF_SQL} as S\nisinstance(d, S)", "isinstance(d, S)"),
    (questions_of_kind, "engine/x.py", f"{OF_SQL}\nS = SqlDestination\nisinstance(d, S)", "isinstance(d, S)"),
    (questions_of_kind, "engine/x.py", "issubclass(type(d), FileSource)", "issubclass(type(d), FileSource)"),
    (questions_of_kind, "engine/x.py", "type(d) is SqlDestination", "type(d) is SqlDestination"),
    (questions_of_kind, "cli/x.py", "d.__class__ in (A, SqlDestination)", "d.__class__ in (A, SqlDestination)"),
    (questions_of_kind, "cli/x.py", "{SqlDestination: f}[type(d)]", "{SqlDestination: f}"),
    (questions_of_kind, "engine/x.py", "match d:\n case SqlDestination(): ...", "SqlDestination()"),
    (questions_of_kind, "cli/x.py", "match type(d):\n case sql.SqlDestination: ...", "sql.SqlDestination"),
    (questions_of_kind, "engine/x.py", "getattr(self.destination, 'f', None)", "getattr(self.destination, 'f', None)"),
    (questions_of_kind, "cli/x.py", "hasattr(d, 'f')", "hasattr(d, 'f')"),
    (patches, "engine/x.py", "import copy\nother = copy.copy(d)", "copy.copy(d)"),
    (patches, "engine/x.py", "from copy import copy\nother = copy(d)\nother.write = f", "copy(d)"),
    (patches, "engine/x.py", "from copy import deepcopy as twin\ntwin(d).write = f", "twin(d)"),
    (patches, "engine/x.py", "import copy as c\ntwin = c.copy\ntwin(d)", "twin(d)"),
    (patches, "engine/x.py", "setattr(d, 'write', f)", "setattr(d, 'write', f)"),
    (patches, "engine/x.py", "object.__setattr__(d, 'write', f)", "object.__setattr__(d, 'write', f)"),
    (patches, "engine/x.py", "d.write = f  # type: ignore[method-assign]", "type: ignore[method-assign]"),
    (
        classes_derived_from_the_log,
        "engine/x.py",
        "from penstock.log.reader import PartitionReader as P\nclass Mine(P): ...",
        "Mine",
    ),
    (
        classes_derived_from_the_log,
        "engine/x.py",
        "import penstock.log.reader as reader\nclass Mine(reader.PartitionReader): ...",
        "Mine",
    ),
    (
        classes_derived_from_the_log,
        "engine/x.py",
        "import penstock.log.reader\nclass Mine(penstock.log.reader.PartitionReader): ...",
        "Mine",
    ),
    (
        classes_derived_from_the_log,
        "engine/spark/x.py",
        "from ...log import reader\nBase = reader.PartitionReader\nclass Mine(Base): ...",
        "Mine",
    ),
    (
        classes_derived_from_the_log,
        "engine/x.py",
        "from penstock import log\nclass Mine(log.reader.Of[int]): ...",
        "Mine",
    ),
    (
        calls_back,
        "destinations/duckdb/session.py",
        "from penstock.destinations.sql.load import loader",
        "destinations.sql.load.loader",
    ),
    (heavy_config, "steps/map/config.py", "from importlib import import_module as f\nf('numpy')", "numpy"),
]


@pytest.mark.parametrize(("rule", "path", "text", "named"), PLANTED)
def test_a_rule_names_what_breaks_it(rule: Rule, path: str, text: str, named: str) -> None:
    assert named in list(rule(Module(path, text)))


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("steps/errors.py", "steps/errors"),
        ("engine/errors/first.py", "engine/errors"),
        ("engine/session.py", "engine/session"),
        ("steps/map/client.py", "steps/map/client"),
        ("sources/stage/first.py", "sources/stage"),
        ("log/engine.py", "log/engine"),
    ],
)
def test_a_name_is_shared_only_by_the_folders_that_may(path: str, named: str) -> None:
    assert named in shared_names([*(module.name for module in modules()), path])
