"""A right file becomes a typed pipeline, quickly and with paths that do not depend on where one stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.config.choices import LIFTED
from penstock.config.component import SourceConfig
from penstock.config.loading import load
from penstock.config.pipeline_config import PipelineConfig, RouteConfig, RouteMode
from penstock.registry import Kind, components

from .conftest import Read

SHOP = """\
# yaml-language-server: $schema=./penstock.schema.json
name: shop
data_dir: ./data
log: {type: local}
sources:
  web: {type: http, listen: 127.0.0.1:8001, tokens: [{id: site, client_secret: "${SITE_TOKEN:-demo}"}]}
routes:
  warehouse:
    from: [web]
    namespace: "/.*/"
    steps:
      - where: "price > 10"
      - omit: [ssn, card.number]
      - map: {keep_unmapped: true, fields: [{src: /price, action: cast, type: "numeric(12,2)"}]}
    to: {type: duckdb, path: ./data/warehouse.duckdb, table: "{{ event_type }}", mode: stream}
"""


def test_a_pipeline_is_read_as_it_is_written(read: Read, tmp_path: Path) -> None:
    config = read(SHOP)
    assert config.name == "shop"
    assert config.data_dir == tmp_path / "data"
    assert config.ledger.url is None
    assert isinstance(config.sources["web"], SourceConfig)
    route = config.routes["warehouse"]
    assert route.from_ == ["web"]
    assert route.mode is RouteMode.STREAM
    assert [name for name, _ in route.step_configs] == ["where", "omit", "map"]
    assert type(route.to) is components(Kind.DESTINATION)["duckdb"].config_class()


def test_a_pipeline_that_was_written_out_reads_back_the_same(read: Read) -> None:
    config = read(SHOP)
    written = config.model_dump(mode="json", by_alias=True, context=None)
    written["sources"]["web"]["tokens"][0]["client_secret"] = "demo"
    assert PipelineConfig.model_validate(written) == config


PATHS = [
    ("./data", "{here}/data"),
    ("data/../kept", "{here}/kept"),
    ("/var/lib/shop", "/var/lib/shop"),
    ("~/shop", "{home}/shop"),
]


@pytest.mark.parametrize(("written", "meant"), PATHS)
def test_paths_start_at_the_file_wherever_one_stands(
    written: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    folder.mkdir()
    text = SHOP.replace("data_dir: ./data", f"data_dir: {written}").replace(
        "./data/warehouse.duckdb", f"{written}/w.db"
    )
    (folder / "pipeline.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    config = load("project/pipeline.yaml")
    expected = Path(meant.format(here=folder, home=tmp_path / "home"))
    assert config.data_dir == expected
    assert config.routes["warehouse"].to.model_dump()["path"] == expected / "w.db"


def test_the_data_folder_is_beside_the_file_if_nothing_is_said(read: Read, tmp_path: Path) -> None:
    assert read(SHOP.replace("data_dir: ./data\n", "")).data_dir == tmp_path / "data"


def route(read: Read, options: str, to: str = "{type: stdout}") -> RouteConfig:
    start = SHOP[: SHOP.index("routes:")]
    return read(f"{start}routes: {{out: {{from: web, to: {to}{options}}}}}").routes["out"]


INTERVALS = [
    ("", "{type: stdout}", RouteMode.STREAM, 0.25),
    (", mode: batch", "{type: stdout}", RouteMode.BATCH, 300.0),
    ("", "{type: stdout, mode: batch}", RouteMode.BATCH, 300.0),
    ("", "{type: stdout, mode: batch, every: 1h}", RouteMode.BATCH, 3600.0),
    (", mode: batch", "{type: stdout, every: 2s}", RouteMode.BATCH, 2.0),
    (", every: 100ms", "{type: stdout}", RouteMode.STREAM, 0.1),
]


@pytest.mark.parametrize(("options", "to", "mode", "interval"), INTERVALS)
def test_mode_and_interval_may_stand_in_the_route_or_in_its_destination(
    options: str, to: str, mode: RouteMode, interval: float, read: Read
) -> None:
    found = route(read, options, to)
    assert (found.mode, found.interval) == (mode, pytest.approx(interval))


KEYS = [
    ("", "{type: stdout}", []),
    (", only_keys: [site]", "{type: stdout}", ["site"]),
    (", only_keys: site", "{type: stdout}", ["site"]),
    (", only_keys: []", "{type: stdout}", []),
    ("", "{type: stdout, only_keys: [site]}", ["site"]),
    ("", "{type: stdout, only_keys: site}", ["site"]),
]


@pytest.mark.parametrize(("options", "to", "keys"), KEYS)
def test_the_tokens_of_a_route_may_stand_in_it_or_in_its_destination(
    options: str, to: str, keys: list[str], read: Read
) -> None:
    assert route(read, options, to).only_keys == keys


MIXED = """\
name: shop
sources:
  web: {type: http, tokens: [{id: site, client_secret: demo}]}
  old: {type: file, path: ./old.ndjson}
routes:
  out: {from: [web, old], only_keys: [shop], to: {type: stdout}}
"""


def test_a_source_that_declares_no_tokens_may_bring_any(read: Read) -> None:
    assert read(MIXED).routes["out"].only_keys == ["shop"]


def test_the_tokens_of_all_sources_of_a_route_are_known(read: Read) -> None:
    app = "{type: http, listen: 127.0.0.1:8002, tokens: [{id: shop, client_secret: other}]}"
    both = MIXED.replace("{type: file, path: ./old.ndjson}", app)
    assert read(both.replace("[shop]", "[shop, site]")).routes["out"].only_keys == ["shop", "site"]


@pytest.mark.parametrize("option", ["", "archive: false\n", "archive: null\n"])
def test_there_is_no_archive_unless_one_is_asked_for(option: str, read: Read) -> None:
    config = read(MIXED + option)
    assert config.archive is None
    assert list(config.routes) == ["out"]


ARCHIVES = [
    ("true", "data/archive", 300.0),
    ("{}", "data/archive", 300.0),
    ("{every: 1h}", "data/archive", 3600.0),
    ("{path: ./kept}", "kept", 300.0),
]


@pytest.mark.parametrize(("option", "folder", "interval"), ARCHIVES)
def test_an_archive_is_a_route_over_all_sources(
    option: str, folder: str, interval: float, read: Read, tmp_path: Path
) -> None:
    found = read(MIXED + f"archive: {option}\n").routes["archive"]
    assert found.from_ == ["web", "old"]
    assert (found.mode, found.interval) == (RouteMode.BATCH, interval)
    assert found.to.model_dump() == {"type": "archive", "path": tmp_path / folder, "names": "incoming", "dst": None}
    assert not found.steps
    assert not found.only_keys


def test_a_pipeline_with_an_archive_reads_back_the_same(read: Read) -> None:
    config = read(MIXED + "archive: {every: 1m}\n")
    written = config.model_dump(mode="json", by_alias=True)
    written["sources"]["web"]["tokens"][0]["client_secret"] = "demo"
    assert PipelineConfig.model_validate(written) == config


def test_a_route_may_be_called_archive_if_nothing_else_is(read: Read) -> None:
    assert read(MIXED.replace("out:", "archive:")).routes["archive"].to.type == "stdout"


def test_no_destination_has_options_of_its_own_under_the_names_that_are_the_routes() -> None:
    for component in components(Kind.DESTINATION).values():
        assert not set(LIFTED) & set(component.config_class().model_fields)


def test_a_destination_called_null_may_be_written_bare(read: Read) -> None:
    assert route(read, "", "{type: null}").to.model_dump()["type"] == "null"


def test_a_bare_step_value_is_its_main_option(read: Read) -> None:
    bare = route(read, ', steps: [{where: "a > 1"}, {omit: [a, b]}]')
    full = route(read, ', steps: [{where: {condition: "a > 1"}}, {omit: {fields: [a, b]}}]')
    assert bare.steps == full.steps


URLS = [
    ("postgresql://u:p@db/x", "postgresql+psycopg://u:p@db/x"),
    ("postgres://db/x", "postgresql+psycopg://db/x"),
    ("postgresql+psycopg://db/x", "postgresql+psycopg://db/x"),
    ("sqlite:////var/ledger.db", "sqlite:////var/ledger.db"),
]


@pytest.mark.parametrize(("written", "meant"), URLS)
def test_the_url_of_a_ledger_is_taken_as_people_write_it(written: str, meant: str, read: Read) -> None:
    url = read(SHOP + f"ledger: {{url: '{written}'}}\n").ledger.url
    assert url is not None
    assert url.get_secret_value() == meant


def test_spark_settings_become_text_as_spark_wants_it(read: Read) -> None:
    config = read(SHOP + "engine: {spark: {spark.ui.enabled: false, spark.task.cpus: 2, spark.app.id: x}}\n")
    assert config.engine.spark == {"spark.ui.enabled": "false", "spark.task.cpus": "2", "spark.app.id": "x"}


def test_a_byte_order_mark_does_no_harm(read: Read) -> None:
    assert read(b"\xef\xbb\xbf" + SHOP.encode()).name == "shop"


def test_reading_a_config_loads_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(SHOP)
    script = (
        "import sys; from penstock.config.loading import load; load(sys.argv[1]);"
        "heavy = {'pyarrow', 'numba', 'numpy', 'pandas', 'pyspark', 'duckdb', 'sqlalchemy', 'granian'};"
        "print(*heavy & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "pipeline.yaml")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
