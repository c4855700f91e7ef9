"""``penstock log export`` and ``log import``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.projects import Project, new_project


@pytest.fixture
def other(tmp_path: Path) -> Project:
    (tmp_path / "other").mkdir()
    return new_project(tmp_path / "other")


def shown(project: Project, partition: int = 0) -> list[tuple[int, str]]:
    lines = project.penstock("log", "show", "0..", "-p", str(partition), "--json").out.splitlines()
    return [(json.loads(line)["offset"], json.loads(line).get("data", "")) for line in lines]


def test_a_log_travels_from_one_pipeline_to_another(shop: Project, other: Project) -> None:
    file = shop.folder / "out.log"
    ran = shop.penstock("log", "export", "--format", "transporter", str(file))
    assert ran.code == 0
    assert "8 entries" in ran.out
    assert "8 have some" in ran.err
    ran = other.penstock("log", "import", str(file), "--source", "web")
    assert ran.code == 0
    assert "partition 0 (web): 8 entries" in ran.out
    assert ran.err == ""
    assert shown(other) == shown(shop)
    assert "8 were there" in other.penstock("log", "import", str(file), "--source", "web").out


@pytest.mark.parametrize(("words", "entries"), [(["2..4"], 3), (["6.."], 2), (["5"], 1), ([], 8)])
def test_a_range_includes_both_its_ends(shop: Project, words: list[str], entries: int) -> None:
    file = shop.folder / "out.log"
    done = json.loads(shop.penstock("log", "export", "--json", "-p", "0", *words, str(file)).out)
    assert (done["entries"], done["path"], done["format"]) == (entries, str(file), "transporter")
    assert done["bytes"] == file.stat().st_size


def test_a_damaged_file_is_refused_and_nothing_is_made(shop: Project, other: Project) -> None:
    file = shop.folder / "out.log"
    shop.penstock("log", "export", str(file))
    file.write_bytes(file.read_bytes()[:-3])
    ran = other.penstock("log", "import", str(file))
    assert (ran.code, ran.out) == (1, "")
    assert "PEN-LOG-016" in ran.err
    assert "7 whole entries" in ran.err
    assert not (other.folder / "data" / "log").exists()


def test_records_that_no_route_takes_are_said_to_be_held_by_nobody(shop: Project, other: Project) -> None:
    file = shop.folder / "out.log"
    shop.penstock("log", "export", "1..2", str(file))
    ran = other.penstock("log", "import", str(file), "--json")
    done = json.loads(ran.out)
    assert (done["source"], done["entries"], done["there_before"]) == ("import", 2, 0)
    assert "no route takes records from 'import'" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ["export"],
        ["export", "one", "two"],
        ["export", "1..2", "3..4", "file"],
        ["export", "-p", "9", "file"],
        ["export", "--format", "parquet", "file"],
        ["import"],
        ["import", "not-there.log"],
    ],
)
def test_what_cannot_be_meant_is_refused(shop: Project, words: list[str]) -> None:
    ran = shop.penstock("log", *words)
    assert (ran.code, ran.out) == (2, "")


def test_a_file_in_a_folder_that_is_not_there_is_refused_with_a_fix(shop: Project) -> None:
    ran = shop.penstock("log", "export", "nowhere/file")
    assert ran.code == 1
    assert "PEN-LOG-018: there is no folder" in ran.err
    assert "Make it, or name another file." in ran.err


def test_a_log_of_several_partitions_is_exported_one_at_a_time(shop: Project) -> None:
    with shop.open().log.writer("web", 1):
        pass
    ran = shop.penstock("log", "export", str(shop.folder / "out.log"))
    assert ran.code == 2
    assert "0, 1" in ran.err
    assert not (shop.folder / "out.log").exists()
