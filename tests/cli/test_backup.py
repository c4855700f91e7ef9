"""``penstock backup`` and ``restore``, and the page about them: its commands are run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from tests.engine.copies import ONE_ROUTE, Site

PAGE = (Path(__file__).parents[2] / "docs/how-to/backup.md").read_text()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.chdir(tmp_path)
    return Site(tmp_path, ONE_ROUTE.replace("  a:\n", "  warehouse:\n"))


def penstock(line: str) -> tuple[int, str, str]:
    ran = CliRunner().invoke(app, line.split())
    return ran.exit_code, ran.stdout, ran.stderr


def test_the_commands_of_the_page_do_what_it_says(site: Site) -> None:
    backup, restore = re.findall(r"\$ penstock ((?:backup|restore) .*)", PAGE)
    site.append(range(130))
    site.deliver("warehouse", size=100)
    site.append(range(130, 160))
    code, out, _ = penstock(backup)
    assert code == 0
    assert re.fullmatch(r"backups/monday: \d+ files, [\d.]+ KiB\n", out)
    site.append(range(160, 200))
    site.deliver("warehouse")
    code, out, err = penstock(restore)
    assert code == 0
    assert "what was there before is in " in err
    assert "warehouse: 30 offsets are at the destination already; they are not sent again" in err
    assert re.search(r"backups/monday, made at .*, is restored: \d+ files", out)
    assert site.deliver("warehouse") == ""
    assert site.rows() == [n for n in range(200) if n % 10 != 9]


def test_what_went_wrong_is_said_with_code_one(site: Site) -> None:
    site.append(range(5))
    site.deliver("warehouse")
    assert penstock("backup b")[0] == 0
    for line, code in [("backup b", "PEN-BAK-005"), ("restore b", "PEN-BAK-011"), ("restore none", "PEN-BAK-001")]:
        ended, _, err = penstock(line)
        assert (ended, code in err) == (1, True)


def test_json_says_what_was_done(site: Site) -> None:
    import json

    site.append(range(10))
    site.deliver("warehouse")
    made = json.loads(penstock("backup b --json")[1])
    assert (made["pipeline"], made["has_ledger"]) == ("shop", True)
    site.folder.joinpath("warehouse.duckdb").unlink()
    done = json.loads(penstock("restore b --force --json")[1])
    (route,) = done["routes"]
    assert (route["route"], route["adopted"]) == ("warehouse", 0)
    assert "lacks 9 rows" in route["missing"]


def test_adopt_drop_and_from_now_are_verbs(site: Site) -> None:
    site.append(range(20))
    site.deliver("warehouse")
    (site.data / "ledger.db").unlink()
    assert "PEN-RTE-019" in site.deliver("warehouse")
    code, out, err = penstock("offset adopt warehouse")
    assert (code, out) == (0, "warehouse: goes on behind what the destination has\n")
    assert "offsets 0..19 are at the destination; they are counted, not sent" in err
    assert site.deliver("warehouse") == ""
    assert site.rows() == [n for n in range(20) if n % 10 != 9]
    site.write(ONE_ROUTE.replace("  a:\n", "  orders:\n"))
    assert "not in the config" in penstock("status")[1]
    assert "penstock offset adopt warehouse orders" in site.deliver("orders")
    code, _, err = penstock("offset drop warehouse --yes")
    assert (code, "0 records that it has not read" in err) == (0, True)
    assert "not in the config" not in penstock("status")[1]
    # Dropped on purpose: the new route may deliver what it likes.
    assert site.deliver("orders") == ""


def test_a_rewind_delivers_again_on_purpose(site: Site) -> None:
    site.append(range(20))
    site.deliver("warehouse")
    (site.data / "ledger.db").unlink()
    assert "penstock offset rewind warehouse --to 1970-01-01" in site.deliver("warehouse")
    code, out, _ = penstock("offset rewind warehouse --to 1970-01-01 --yes")
    assert (code, out) == (0, "warehouse: delivers from where it stands at the next start\n")
    assert site.deliver("warehouse") == ""
    assert site.rows() == sorted([n for n in range(20) if n % 10 != 9] * 2)
