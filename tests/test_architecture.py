"""Imports point one way, and heavy or foreign things stay in their rooms.

Each rule takes one module and yields what breaks it; ``test_architecture_rules.py`` shows that each of them can.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

import pytest

from penstock import _HOMES

PACKAGE = Path(__file__).parents[1] / "penstock"
HOMES = {f"penstock.{name}": f"{home}.{name}" for name, home in _HOMES.items()}
"""What the public face gives, and where that truly is."""

LAYERS = {
    "__version__": 0, "backoff": 0, "boot": 0, "compiled": 0, "durable": 0, "errors": 0,
    "failing_targets": 0, "faults": 0, "heartbeat": 0,
    "pandas_on_demand": 0, "parent_death": 0, "redaction": 0, "stop_signals": 0,
    "record": 1, "registry": 1, "config": 1, "outcome": 1, "items": 1,
    "json": 2, "flatten": 2, "otlp": 2, "siphash": 2, "holding": 2, "sampling": 2,
    "conflation": 2, "sessions": 2,
    "log": 3, "sources": 3, "steps": 3, "destinations": 3,
    "engine": 4,
    "demo": 5,
    "cli": 6,
    "testing": 7,
}  # fmt: skip
"""What stands on what: a module imports from its own layer or a lower one."""

ALLOWED_UPWARD = {("config", "log.config")}
"""The pipeline's config holds the log's: a config class, without the log's code."""

NEIGHBOURS = {"log", "sources", "steps", "destinations"}
BORROWED = {
    "sources": (
        "log.config", "log.format.frame", "log.format.head", "log.format.log_files", "log.group_commit",
        "log.local_log", "log.writer",
    ),
    "sources.otlp": (
        "sources.http.access", "sources.http.application", "sources.http.body", "sources.http.config",
        "sources.http.intake", "sources.http.metrics", "sources.http.readiness", "sources.http.request",
        "sources.http.responses", "sources.http.source", "sources.http.worker_process",
    ),
    "destinations.archive": ("destinations.file.line_files", "steps.chain"),
    "destinations.redshift": ("destinations.postgres.dialect",),
    "destinations.sql": ("steps.outcomes",),
    "destinations.state.store.duckdb_store": (
        "destinations.duckdb.dialect", "destinations.duckdb.mirror_applier", "destinations.duckdb.open_file",
        "destinations.duckdb.session",
    ),
    "destinations.state.store.postgres_connection": (
        "destinations.postgres.copy_rows", "destinations.postgres.dialect", "destinations.postgres.error_translation",
        "destinations.postgres.mirror_applier", "destinations.postgres.session",
    ),
    "destinations.state.store.postgres_store": ("destinations.postgres.connect", "destinations.postgres.dialect"),
    "destinations.stdout": ("destinations.file.line_files",),
    "steps.pick": ("steps.omit",),
    "steps.skip": ("steps.where",),
    "engine.backtest": ("steps.sample.config", "steps.sample.scan_spans", "steps.sample.step"),
    "engine.operate.samples": ("destinations.archive.archive_reader",),
}  # fmt: skip
"""Who imports from a component that it is no part of, or from a neighbour in its layer, and what."""

COMPUTED = "<computed>"
"""The name of a module that is known only when the code runs."""

ROOMS = {
    COMPUTED: ("__init__.py", "registry.py"),
    "pyspark": ("engine/spark/", "log/spark_source.py"),
    "duckdb": ("destinations/duckdb/", "destinations/state/store/duckdb_store.py", "demo/show.py"),
    "sqlalchemy": ("engine/ledger/", "engine/engine.py", "engine/running/",
                   "engine/processes/early_exit.py"),
    "psycopg": ("sources/postgres/", "destinations/postgres/", "destinations/redshift/",
                "destinations/state/store/postgres_connection.py"),
    "granian": ("sources/http/",),
    "grpc": ("sources/otlp/",),
    "numba": ("compiled/", "json/words.py"),
    "typer": ("cli/",),
    "rich": ("cli/", "demo/show.py"),
    "pytest": ("testing/",),
    "hypothesis": ("testing/",),
}  # fmt: skip

VENDORS = re.compile("duckdb|postgres|snowflake|bigquery|redshift|clickhouse", re.IGNORECASE)
NAMES_VENDORS = {
    "redaction.py": (VENDORS.pattern, "words that are no secret"),
    "demo/": ("duckdb", "runs one pipeline, and shows what it loaded"),
    "config/pipeline_config.py": ("postgres", "a ledger is kept in SQLite or PostgreSQL"),
    "config/value_types/database_url.py": ("postgres", "the address of a database that speaks PostgreSQL's protocol"),
    "destinations/redshift/": ("postgres", "speaks PostgreSQL's protocol, and reserves its names"),
    "destinations/state/": ("postgres|duckdb", "keeps state in databases that other destinations know"),
    "engine/ledger/database.py": ("postgres", "a ledger is kept in SQLite or PostgreSQL"),
    "cli/about.py": ("duckdb", "tells the versions of installed packages"),
    "cli/backup.py": ("postgres", "a ledger in PostgreSQL has backups of its own"),
}
"""Who names a vendor outside the vendor's folders, which, and why."""

MOST_MODULES = 16
"""What a folder may hold before nobody finds anything in it."""

SAME_NAME = {
    "all_or_nothing": "destinations/sql/load|testing",
    "backtest": "cli/sample_verbs|engine",
    "backup": "cli|engine",
    "client": "destinations/(bigquery|ga4)",
    "config": r"\.|log|(sources|steps|destinations)/\w+",
    "contract": "sources|steps|destinations(/state/store)?",
    "demo": r"\.|cli",
    "destination": r"destinations/\w+|testing",
    "dialect": r"destinations/\w+",
    "doctor": "cli|engine/operate",
    "engine": r"\.|engine",
    "error_translation": "destinations/(clickhouse|postgres)",
    "failed": "cli|engine",
    "event_mapping": "destinations/(dataset|ga4)",
    "file": "sources|destinations",
    "http": "sources|destinations",
    "log": r"\.|cli/log_verbs",
    "mirror": "destinations/sql|testing",
    "mirror_applier": r"destinations/\w+",
    "otlp": r"\.|sources|destinations",
    "postgres": "sources|destinations",
    "remap": "steps|destinations/sql/unmapped",
    "sample": r"steps|cli/sample_verbs",
    "schema": "cli|destinations/sql",
    "session": r"destinations/\w+",
    "source": r"sources/\w+|testing",
    "sql": "steps|destinations",
    "stage": "destinations/sql(/mirror)?",
    "stage_files": r"destinations/\w+",
    "stager": r"destinations/(\w+|sql/stage)",
    "status": "cli|engine/operate",
    "step": r"steps/\w+|testing",
    "tap": "cli|engine/operate",
    "type_names": r"destinations/\w+",
    "unmapped": "flatten|destinations/sql",
    "unmapped_store": "destinations/(duckdb|postgres|sql/unmapped)",
    "warm_up": r"engine/spark|(sources|steps|destinations)/\w+",
}
"""Names of modules and folders that several folders have, for the same thing in each (a part that every component of a
kind has, a verb and what it asks, a promise and the suite that tries it), and the folders that may have them."""

LOOKED_INTO = {
    "engine/backup/restore_backup.py": {"ctypes.CDLL(None, use_errno=True)"},
    "engine/cases/case_runner.py": {"each", "record"},
    "engine/ledger/database.py": {"error"},
    "engine/ledger/target_locks.py": {"error"},
    "engine/spark/spark_session.py": {"log4j.Level"},
    "engine/steady_clock.py": {"time"},
    "cli/schema.py": {"done"},
}
"""Where the engine and what stands on it look for an attribute by its name, and in what: in no component."""

KIND = re.compile("(Destination|Source|Config)$")
"""How the classes of components are called."""

PATCHES = {"copy.copy", "copy.deepcopy", "setattr", "builtins.setattr"}


@dataclass(frozen=True)
class Module:
    """A file of the package: its path in it, and its text."""

    name: str
    text: str

    @property
    def dotted(self) -> str:
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def import_statements(self) -> list[tuple[ast.AST, str, str]]:
        """Each import: its node, the name that it binds, and the full name of what that stands for."""
        package = ["penstock", *self.name.split("/")[:-1]]
        found: list[tuple[ast.AST, str, str]] = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [(node, alias.asname or alias.name, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) + 1 - node.level] if node.level else []
                for alias in node.names:
                    full = ".".join([*above, *filter(None, [node.module]), alias.name])
                    found.append((node, alias.asname or alias.name, HOMES.get(full, full)))
        return found

    @cached_property
    def _origins(self) -> dict[str, str]:
        origins = {bound: full for _, bound, full in self.import_statements}
        for node in self.nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=other)], value=ast.Name() | ast.Attribute() as value):
                    head, dot, rest = ast.unparse(value).partition(".")
                    if head in origins:
                        origins.setdefault(other, origins[head] + dot + rest)
        return origins

    def origin(self, expression: ast.AST) -> str:
        """The full name of what a name stands for, whatever the import calls it here."""
        head, dot, rest = ast.unparse(expression).partition(".")
        return self._origins.get(head, head) + dot + rest

    def origins(self, expression: ast.AST) -> list[str]:
        """The full names of all that an expression names."""
        return [self.origin(node) for node in ast.walk(expression) if isinstance(node, ast.Name | ast.Attribute)]


Rule = Callable[[Module], Iterable[str]]


@cache
def modules() -> list[Module]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [Module(path.relative_to(PACKAGE).as_posix(), path.read_text()) for path in paths]


def breaches(rule: Rule) -> list[str]:
    return [f"{module.name}: {what}" for module in modules() for what in rule(module)]


def within(name: str, outer: str) -> bool:
    return f"{name}.".startswith(f"{outer}.")


def imports(module: Module, *, types: bool = False) -> Iterator[str]:
    """The full name of everything that a module imports, also inside functions; for type checkers only if asked."""
    unread = {
        id(inner)
        for node in module.nodes
        if isinstance(node, ast.If) and module.origin(node.test) == "typing.TYPE_CHECKING" and not types
        for statement in node.body
        for inner in ast.walk(statement)
    }
    yield from (full for node, _, full in module.import_statements if id(node) not in unread)
    for node in module.nodes:
        if isinstance(node, ast.Call) and module.origin(node.func) in ("importlib.import_module", "__import__"):
            match [*node.args, *(keyword.value for keyword in node.keywords)]:
                case [ast.Constant(value=str(full)), *_] if not full.startswith("."):
                    yield full
                case _:
                    yield COMPUTED


def imports_of_ours(module: Module) -> Iterator[str]:
    """What a module imports from the package, also for type checkers: that is knowledge of it too."""
    ours = (full for full in imports(module, types=True) if within(full, "penstock"))
    yield from (full.removeprefix("penstock").removeprefix(".") for full in ours)


def upward_imports(module: Module) -> Iterator[str]:
    room = module.dotted.split(".")[0]
    for other in imports_of_ours(module) if room != "__init__" else ():
        known = LAYERS.get(other.split(".")[0])
        allowed = any(room == lower and within(other, upper) for lower, upper in ALLOWED_UPWARD)
        if (known is None or known > LAYERS[room]) and not allowed:
            yield other or "the whole package"


def test_imports_point_one_way() -> None:
    assert breaches(upward_imports) == []


@cache
def components() -> frozenset[str]:
    doors = [module for module in modules() if re.search("^component = ", module.text, re.MULTILINE)]
    return frozenset(door.dotted for door in doors)


def sideways_imports(module: Module) -> Iterator[str]:
    """What a module imports from a component that it is no part of, or from a neighbour in the layer."""

    def component(dotted: str) -> str | None:
        return next((name for name in components() if within(dotted, name)), None)

    room = module.dotted.split(".")[0]
    for other in imports_of_ours(module):
        beside = {room, other.split(".")[0]}
        if (len(beside) == 2 and beside <= NEIGHBOURS) or component(other) not in (None, component(module.dotted)):
            yield other


def borrowed(module: Module, other: str) -> list[tuple[str, str]]:
    """What lets the module import the other."""
    pairs = [(borrower, lent) for borrower, lents in BORROWED.items() for lent in lents]
    return [(borrower, lent) for borrower, lent in pairs if within(module.dotted, borrower) and within(other, lent)]


def unlisted_sideways_imports(module: Module) -> list[str]:
    return [other for other in sideways_imports(module) if not borrowed(module, other)]


def test_components_and_their_kinds_know_nothing_of_each_other() -> None:
    assert breaches(unlisted_sideways_imports) == []
    used = {pair for module in modules() for other in sideways_imports(module) for pair in borrowed(module, other)}
    idle = {(borrower, lent) for borrower, lents in BORROWED.items() for lent in lents} - used
    assert idle == set(), "no longer needs an exception"


def test_a_folder_holds_what_one_can_look_over() -> None:
    doors = [module for module in modules() if module.name.endswith("__init__.py")]
    held = Counter(str(PurePosixPath(module.name).parent) for module in modules() if module not in doors)
    assert {folder: count for folder, count in held.items() if count > MOST_MODULES} == {}
    bare = [door.name for door in doors if not ast.get_docstring(door.tree)]
    assert bare == [], "a room says at its door what it is for"


def folders_by_name(paths: Iterable[str]) -> dict[str, set[str]]:
    """For each name that several folders have, of a module or of a folder: which have it."""
    folders = defaultdict(set)
    for path in map(PurePosixPath, paths):
        for place in (path.with_suffix(""), *path.parents):
            folders[place.name].add(str(place.parent))
    return {name: found for name, found in folders.items() if len(found) > 1 and name != "__init__"}


def shared_names(paths: Iterable[str]) -> list[str]:
    return [
        f"{folder}/{name}"
        for name, folders in folders_by_name(paths).items()
        for folder in sorted(folders)
        if not re.fullmatch(SAME_NAME.get(name, ""), folder)
    ]


def test_no_two_modules_share_a_name_unless_they_are_the_same_thing() -> None:
    paths = [module.name for module in modules()]
    assert shared_names(paths) == []
    assert SAME_NAME.keys() - folders_by_name(paths).keys() == set(), "no longer needs an exception"


def libraries_outside_their_rooms(module: Module) -> list[str]:
    libraries = [full.split(".")[0] for full in imports(module)]
    return [library for library in libraries if not module.name.startswith(ROOMS.get(library, ""))]


def test_a_library_is_used_only_in_its_rooms() -> None:
    assert breaches(libraries_outside_their_rooms) == []


@pytest.mark.parametrize(("library", "room"), [(library, room) for library, rooms in ROOMS.items() for room in rooms])
def test_no_library_has_a_room_that_it_does_not_use(library: str, room: str) -> None:
    used = [module for module in modules() if module.name.startswith(room)]
    assert any(within(full, library) for module in used for full in imports(module))


def questions_of_kind(module: Module) -> Iterator[str]:
    """Where the engine and what stands on it ask for a component's class, or for an attribute that it may have."""
    if not module.name.startswith(("engine/", "cli/", "config/")):
        return
    for node in module.nodes:
        kinds: list[ast.expr | None] = []
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kind]):
                kinds = [kind]
            case ast.Compare(left=left, comparators=others):
                kinds = [left, *others]
            case ast.MatchClass(cls=kind) | ast.MatchValue(value=kind):
                kinds = [kind]
            case ast.Dict(keys=keys):
                kinds = keys
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[whom, *_]):
                if ast.unparse(whom) not in LOOKED_INTO.get(module.name, ()):
                    yield ast.unparse(node)
        if any(KIND.search(name) for kind in kinds if kind for name in module.origins(kind)):
            yield ast.unparse(node)


def test_the_engine_asks_what_a_component_can_do_and_not_what_it_is() -> None:
    assert breaches(questions_of_kind) == []
    texts = {module.name: module.text for module in modules()}
    allowed = [(place, whom) for place, whoms in LOOKED_INTO.items() for whom in whoms]
    idle = [(place, whom) for place, whom in allowed if f"attr({whom}, " not in texts.get(place, "")]
    assert idle == [], "no longer needs an exception"


def words(module: Module) -> Iterator[str]:
    """Every name and text of a module's code; prose (docstrings, comments) may give examples."""
    prose = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
    for node in module.nodes:
        for _, value in ast.iter_fields(node) if id(node) not in prose else ():
            for word in value if isinstance(value, list) else [value]:
                if isinstance(word, str | bytes):
                    yield word if isinstance(word, str) else word.decode("latin-1")


def vendors_named(module: Module) -> list[str]:
    return [vendor.lower() for word in (module.name, *words(module)) for vendor in VENDORS.findall(word)]


def foreign_vendors(module: Module) -> Iterator[str]:
    allowed = [vendors for place, (vendors, _) in NAMES_VENDORS.items() if module.name.startswith(place)]
    for vendor in vendors_named(module):
        at_home = module.name.startswith((f"sources/{vendor}/", f"destinations/{vendor}/"))
        if not at_home and not any(re.fullmatch(vendors, vendor) for vendors in allowed):
            yield vendor


def test_a_vendor_is_named_only_in_its_folder() -> None:
    assert breaches(foreign_vendors) == []


@pytest.mark.parametrize("place", NAMES_VENDORS)
def test_nobody_may_name_a_vendor_who_does_not(place: str) -> None:
    named = {vendor for module in modules() if module.name.startswith(place) for vendor in vendors_named(module)}
    assert set(NAMES_VENDORS[place][0].split("|")) <= named, "no longer needs an exception"


def calls_back(module: Module) -> list[str]:
    """The loaders that a session imports."""
    loaders = [f"destinations.sql.{name}" for name in ("load.loader", "load.all_or_nothing", "load.attempt")]
    loaders += ["destinations.sql.mirror.mirror_loader", "destinations.sql.destination"]
    called = module.name.startswith("destinations/") and module.name.endswith(("/session.py", "/mirror_applier.py"))
    return [other for other in imports_of_ours(module) if called and any(within(other, name) for name in loaders)]


def test_what_loads_rows_calls_a_session_and_is_never_called_by_it() -> None:
    """A session takes rows and returns a result: it knows no loader, and is given no function to call."""
    assert breaches(calls_back) == []
    contracts = {f"destinations/sql/{name}" for name in ("session.py", "mirror/applier.py", "load/table_load.py")}
    found = [module for module in modules() if module.name in contracts]
    assert len(found) == len(contracts)
    assert [module.name for module in found if "Callable" in words(module)] == []


def patches(module: Module) -> list[str]:
    """Where an object is copied or written to in order to change what it does."""
    calls = [node for node in module.nodes if isinstance(node, ast.Call)]
    patching = [call for call in calls if (name := module.origin(call.func)) in PATCHES or "__setattr__" in name]
    return [ast.unparse(call) for call in patching] + re.findall(r"type: ignore\[method-assign\]", module.text)


def test_no_object_is_patched() -> None:
    """What an object does is given to it when it is made."""
    assert breaches(patches) == []


def classes_derived_from_the_log(module: Module) -> list[str]:
    classes = [node for node in module.nodes if isinstance(node, ast.ClassDef) and module.name.startswith("engine/")]
    return [
        derived.name
        for derived in classes
        if any(within(name, "penstock.log") for base in derived.bases for name in module.origins(base))
    ]


def test_the_engine_takes_what_the_log_yields_and_is_never_called_by_it() -> None:
    assert breaches(classes_derived_from_the_log) == []


def heavy_config(module: Module) -> set[str]:
    heavy = {"pyarrow", "numba", "pyspark", "duckdb", "granian", "sqlalchemy", "pandas", "numpy"}
    of_config = module.name.endswith("/config.py") or module.name.startswith("config/")
    return {full.split(".")[0] for full in imports(module)} & heavy if of_config else set()


def test_config_classes_need_nothing_heavy() -> None:
    """What ``penstock validate`` imports must stay light."""
    assert breaches(heavy_config) == []


def test_what_plans_a_query_needs_nothing_heavy() -> None:
    """Spark starts three short-lived processes per route that import no more of us than the reader."""
    code = "import sys, penstock.engine.spark.route_source; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numba", "duckdb", "sqlalchemy", "pandas", "sqlglot", "psycopg"} & set(loaded)
