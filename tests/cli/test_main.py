"""The command as a whole: help everywhere, JSON everywhere, quick imports, errors for people."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer
from typer.main import get_command

from penstock.cli._support.exit_codes import DEBUG, report_errors
from penstock.cli.main import app
from tests.cli.projects import Project, penstock

HEAVY = {"pyspark", "py4j", "pyarrow", "numba", "sqlalchemy", "duckdb", "numpy", "pandas", "granian"}
SPOKEN = {
    "init", "validate", "run", "status", "list", "about", "doctor", "tap", "plan",
    "schema show", "schema diff", "schema remap", "schema log", "schema config",
    "log show", "log current", "log oldest", "offset list", "offset show",
    "failed list", "failed show", "failed replay", "failed drop",
}  # fmt: skip


def verbs() -> Iterator[tuple[str, object]]:
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        if below is None:
            yield name, command
        else:
            yield from ((f"{name} {inner}", each) for inner, each in below.items())


def test_every_verb_is_there() -> None:
    assert {name for name, _ in verbs()} >= SPOKEN


@pytest.mark.parametrize("verb", sorted(SPOKEN))
def test_every_verb_has_help_and_json_and_explains_each_option(verb: str) -> None:
    ran = penstock(*verb.split(), "--help")
    assert ran.code == 0
    assert "--json" in ran.out
    command = dict(verbs())[verb]
    assert command.help  # type: ignore[attr-defined]
    unexplained = [each.name for each in command.params if not getattr(each, "help", None)]  # type: ignore[attr-defined]
    assert unexplained == []


@pytest.mark.parametrize("words", [["--help"], ["validate"], ["list"], ["schema"], ["about", "where"], ["--version"]])
def test_verbs_without_data_load_nothing_heavy(fresh: Project, words: list[str]) -> None:
    loaded = loaded_by(fresh, words)
    assert "penstock" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    "words",
    [
        ["offset", "rewind", "warehouse", "--to", "2026-01-31T09:01", "--yes"],
        ["log", "current"], ["log", "oldest"], ["log", "show"], ["offset", "list"], ["offset", "show", "warehouse"],
        ["status"], ["failed", "list"], ["failed", "show", "warehouse", "0"],
        ["tap", "audit", "--oldest", "--no-follow"],
    ],
)  # fmt: skip
def test_verbs_that_read_the_log_load_neither_engine_nor_pandas(shop: Project, words: list[str]) -> None:
    loaded = loaded_by(shop, words)
    assert "pyarrow" in loaded
    assert loaded & (HEAVY - {"pyarrow", "numpy", "sqlalchemy"}) == set()


def loaded_by(project: Project, words: list[str]) -> set[str]:
    """The packages that a verb has imported when it ends, in a process of its own."""
    script = (
        "import json, sys\n"
        "from penstock.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=project.folder, capture_output=True, text=True, check=True
    )
    return set(json.loads(ran.stderr.splitlines()[-1]))


def test_output_into_a_pipe_has_no_colours(shop: Project) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "status"],
        cwd=shop.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "warehouse" in ran.stdout
    assert "\x1b" not in ran.stdout


@pytest.mark.parametrize(
    "words", [["nonsense"], ["log", "shwo"], ["status", "--nonsense"], ["list", "tables"], ["init"]]
)
def test_words_that_are_not_known_are_usage_errors(words: list[str]) -> None:
    ran = penstock(*words)
    assert (ran.code, ran.out) == (2, "")
    assert "Usage" in ran.err


def broken() -> None:
    raise KeyError("lost")


def test_a_bug_is_called_one_and_shows_its_trace_only_when_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(DEBUG, raising=False)
    with pytest.raises(typer.Exit) as ended:
        report_errors(broken)()
    assert ended.value.exit_code == 70
    told = capsys.readouterr().err
    assert "KeyError: 'lost'" in told
    assert "bug of Penstock" in told
    assert "Traceback" not in told
    monkeypatch.setenv(DEBUG, "1")
    with pytest.raises(KeyError):
        report_errors(broken)()


def refused_by_the_system() -> None:
    raise PermissionError(13, "Permission denied", "/data/ledger.db")


def test_what_the_system_refuses_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        report_errors(refused_by_the_system)()
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err == "Permission denied: /data/ledger.db\n"


def test_the_version() -> None:
    assert penstock("--version").out.startswith("penstock ")
