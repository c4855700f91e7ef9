"""Imports point one way, and heavy or foreign things stay in their rooms."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "penstock"

LAYERS = {
    "backoff": 0, "compiled": 0, "durable": 0, "errors": 0, "faults": 0, "heartbeat": 0, "parent_death": 0,
    "redaction": 0,
    "record": 1, "registry": 1, "config": 1, "outcome": 1,
    "json": 2, "flatten": 2,
    "log": 3, "sources": 3, "steps": 3, "destinations": 3,
    "engine": 4,
    "demo": 5,
    "cli": 6,
    "testing": 7,
}  # fmt: skip
"""What stands on what: a module imports from its own layer or a lower one."""

ALLOWED_UPWARD = {("config", "log.config")}
"""The pipeline's config holds the log's: a config class, without the log's code."""

ROOMS = {
    "pyspark": ("engine/", "log/spark_source.py"),
    "duckdb": ("destinations/duckdb/", "demo/"),
    "sqlalchemy": ("engine/",),
    "granian": ("sources/http/",),
    "numba": ("compiled.py", "json/words.py"),
    "typer": ("cli/",),
    "rich": ("cli/", "demo/"),
    "pytest": ("testing/",),
    "hypothesis": ("testing/",),
}

VENDORS = re.compile("duckdb|postgres|snowflake|bigquery|redshift|clickhouse", re.IGNORECASE)
VENDOR_ROOMS = tuple(f"{kind}/{name}/" for kind in ("sources", "destinations") for name in VENDORS.pattern.split("|"))
NAMES_VENDORS = {
    "redaction.py": "words that are no secret",
    "demo/": "runs one pipeline, and shows what it loaded",
    "config/pipeline_config.py": "a ledger is kept in SQLite or PostgreSQL",
    "config/value_types/database_url.py": "the address of a database that speaks PostgreSQL's protocol",
    "engine/ledger/database.py": "a ledger is kept in SQLite or PostgreSQL",
    "cli/about.py": "tells the versions of installed packages",
    "cli/backup.py": "a ledger in PostgreSQL has backups of its own",
}

MOST_MODULES = 16
"""What a folder may hold before nobody finds anything in it."""

ONE_EACH = {
    "all_or_nothing", "config", "contract", "destination", "dialect", "doctor", "error_translation", "errors",
    "unmapped_store", "mirror_applier", "session", "source", "stage_files", "stager", "status", "step", "tap",
    "type_names", "client",
}  # fmt: skip
"""Names that many folders have, for the same thing in each: a part that every component of a kind has, a verb and what
it asks, or a promise and the suite that tries it."""


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), path


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> Iterator[str]:
    """Every module that the file imports, also inside functions, except for type checkers only."""
    tree = _tree(path)
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


def test_imports_point_one_way() -> None:
    upward = []
    for name, path in modules():
        room = name.split("/")[0].removesuffix(".py")
        if room == "__init__":
            continue
        for module in imports(path):
            other = module.removeprefix("penstock.")
            if other == module or any(room == lower and other.startswith(upper) for lower, upper in ALLOWED_UPWARD):
                continue
            if LAYERS[other.split(".")[0]] > LAYERS[room]:
                upward.append(f"{name} imports {module}")
    assert upward == []


def test_a_folder_holds_what_one_can_look_over() -> None:
    held = Counter(str(path.parent.relative_to(PACKAGE)) for _, path in modules() if path.name != "__init__.py")
    assert {folder: count for folder, count in held.items() if count > MOST_MODULES} == {}
    bare = [name for name, path in modules() if path.name == "__init__.py" and not ast.get_docstring(_tree(path))]
    assert bare == [], "a room says at its door what it is for"


def test_no_two_modules_share_a_name_unless_they_are_the_same_thing() -> None:
    named = Counter(path.stem for _, path in modules() if path.stem != "__init__")
    assert {name for name, count in named.items() if count > 1} <= ONE_EACH


@pytest.mark.parametrize("library", ROOMS)
def test_a_library_is_used_only_in_its_rooms(library: str) -> None:
    users = [name for name, path in modules() if any(m.split(".")[0] == library for m in imports(path))]
    strangers = [name for name in users if not name.startswith(ROOMS[library])]
    assert strangers == []
    assert users, f"nobody uses {library}"


def test_the_engine_asks_what_a_component_can_do_and_not_what_it_is() -> None:
    what_it_is = re.compile(
        r"isinstance\(.*, .*(Destination|Source|Config)\b|(get|has)attr\((source|destination|config|s),"
    )
    asked = [
        f"{name}: {ast.unparse(call)}"
        for name, path in modules()
        if name.startswith(("engine/", "cli/", "config/"))
        for call in ast.walk(_tree(path))
        if isinstance(call, ast.Call) and what_it_is.match(ast.unparse(call))
    ]
    assert asked == []


def words(path: Path) -> Iterator[str]:
    """Every name and text of a module's code; prose (docstrings, comments) may give examples."""
    prose = {id(node.value) for node in ast.walk(_tree(path)) if isinstance(node, ast.Expr)}
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value
        elif isinstance(node, ast.Name | ast.Attribute | ast.alias | ast.ClassDef | ast.FunctionDef | ast.arg):
            yield next(getattr(node, field) for field in ("id", "attr", "name", "arg") if hasattr(node, field))
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_a_vendor_is_named_only_in_its_folder() -> None:
    naming = {name for name, path in modules() if any(VENDORS.search(word) for word in words(path))}
    strangers = {name for name in naming if not name.startswith((*VENDOR_ROOMS, *NAMES_VENDORS))}
    assert strangers == set()
    idle = [allowed for allowed in NAMES_VENDORS if not any(name.startswith(allowed) for name in naming)]
    assert idle == [], "no longer needs an exception"


def test_what_loads_rows_calls_a_session_and_is_never_called_by_it() -> None:
    """A session takes rows and returns a result: it knows no loader, and is given no function to call."""
    loaders = {f"penstock.destinations.sql.{name}" for name in ("load.loader", "load.all_or_nothing", "load.attempt")}
    loaders |= {"penstock.destinations.sql.mirror.mirror_loader", "penstock.destinations.sql.destination"}
    callers = [
        name
        for name, path in modules()
        if name.startswith("destinations/") and name.endswith(("/session.py", "/mirror_applier.py"))
        if loaders & set(imports(path))
    ]
    assert callers == []
    for contract in ("session.py", "mirror/applier.py", "load/table_load.py"):
        assert "Callable" not in words(PACKAGE / "destinations/sql" / contract), contract


def test_no_object_is_patched() -> None:
    """What an object does is given to it when it is made."""
    patches = {"copy.copy", "setattr", "object.__setattr__"}
    patching = [
        f"{name}: {ast.unparse(call)}"
        for name, path in modules()
        for call in ast.walk(_tree(path))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in patches
    ]
    assert patching == []
    assert [name for name, path in modules() if "type: ignore[method-assign]" in path.read_text()] == []


def test_the_engine_takes_what_the_log_yields_and_is_never_called_by_it() -> None:
    derived = []
    for name, path in modules():
        nodes = list(ast.walk(_tree(path)))
        of_log = {
            alias.asname or alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock.log")
            for alias in node.names
        }
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)] if name.startswith("engine/") else []
        derived += [f"{name}: {c.name}" for c in classes if of_log & {ast.unparse(base) for base in c.bases}]
    assert derived == []


def test_config_classes_need_nothing_heavy() -> None:
    """What ``penstock validate`` imports must stay light."""
    heavy = {"pyarrow", "numba", "pyspark", "duckdb", "granian", "sqlalchemy", "pandas", "numpy"}
    for name, path in modules():
        if name.endswith("/config.py") or name.startswith("config/"):
            assert not {m.split(".")[0] for m in imports(path)} & heavy, name


def test_what_plans_a_query_needs_nothing_heavy() -> None:
    """Spark starts three short-lived processes per route that import no more of us than the reader."""
    code = "import sys, penstock.engine.spark.route_source; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numba", "duckdb", "sqlalchemy", "pandas", "sqlglot", "psycopg"} & set(loaded)
