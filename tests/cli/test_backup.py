"""``penstock backup`` and ``restore``, and the page about them: its commands are run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.log.local_log import LocalLog
from penstock.record import Record, entries
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
    assert (code, out) == (0, "warehouse: continues after what the destination has\n")
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


def test_nothing_is_replayed_while_a_route_waits_for_a_decision_about_its_past(site: Site) -> None:
    """An older copy was put back by hand: what is open in it may have been replayed since."""
    with LocalLog(site.data / "log").writer("web") as writer:
        writer.append(entries([Record(b"no JSON", namespace="web")]))
    site.append(range(10))
    site.deliver("warehouse")
    site.keep("older")
    site.append(range(10, 20))
    site.deliver("warehouse")
    site.put_back("older")
    code, _, err = penstock("failed replay --all")
    assert (code, "PEN-RTE-017" in err) == (1, True)
    assert penstock("offset adopt warehouse")[0] == 0
    assert penstock("failed replay --all")[:2] == (0, "warehouse: 1 entry replayed\n")


def test_a_rewind_says_that_open_failed_records_come_again(site: Site) -> None:
    site.append(range(10))
    with LocalLog(site.data / "log").writer("web") as writer:
        writer.append(entries([Record(b"no JSON", namespace="web")]))
    site.deliver("warehouse")
    said = [penstock(f"offset rewind warehouse --to {to} --yes")[2] for to in (11, 10, 0)]
    assert ["1 open failed record among them" in line for line in said] == [False, True, True]
