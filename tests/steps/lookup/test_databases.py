"""Databases come, change and go missing while a pipeline runs, and no event fails for it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.steps.lookup.config import LookupConfig
from penstock.steps.lookup.step import Lookup
from penstock.testing.step import batch_of, kept
from tests.support.mmdb import BERLIN, SAO_PAULO, write_asn, write_city, write_database

EVENT = b'{"ip":"81.2.69.142"}'


def step(*databases: Path) -> Lookup:
    rules = [{"name": "ip_lookup", "from": "/ip", "to": "/geo"}]
    return Lookup(LookupConfig.model_validate({"rules": rules, "databases": databases, "implicit": False}))


def location(*databases: Path, event: bytes = EVENT) -> Any:
    (data,) = kept(step(*databases).apply(batch_of(event)))
    return json.loads(data).get("geo")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "penstock.lookup"]


def test_a_missing_database_is_said_once_and_changes_no_event(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "City.mmdb"
    for _ in range(3):
        assert kept(step(path).apply(batch_of(EVENT))) == [EVENT]
    assert warnings(caplog) == [f"ip_lookup goes on without {path}: there is no such file"]


def test_what_other_databases_know_is_there_without_the_missing_one(tmp_path: Path) -> None:
    found = location(tmp_path / "City.mmdb", write_asn(tmp_path / "ASN.mmdb"))
    assert found == {"autonomous_system_number": 20712, "autonomous_system_organization": 'Andrews "A&A" Ltd'}


def test_a_database_that_comes_later_is_used_by_the_next_task(tmp_path: Path) -> None:
    path = tmp_path / "City.mmdb"
    assert location(path) is None
    write_city(path)
    assert location(path)["city"] == "Berlin"


def test_a_replaced_database_is_used_by_the_next_task_and_not_in_the_middle_of_one(tmp_path: Path) -> None:
    path = write_database(tmp_path / "City.mmdb", "City", {"81.2.69.0/24": BERLIN})
    running = step(path)
    assert json.loads(kept(running.apply(batch_of(EVENT)))[0])["geo"]["city"] == "Berlin"
    os.replace(write_database(tmp_path / "new", "City", {"81.2.69.0/24": SAO_PAULO}), path)
    assert json.loads(kept(running.apply(batch_of(EVENT)))[0])["geo"]["city"] == "Berlin"
    assert location(path)["city"] == "São Paulo"


def test_a_removed_database_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_city(tmp_path / "City.mmdb")
    assert location(path)["city"] == "Berlin"
    path.unlink()
    assert location(path) is None
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "it is not a MaxMind database"), (b"not a database" * 100, "it is not a MaxMind database")],
    ids=["empty", "text"],
)
def test_a_file_that_is_no_database_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, problem: str
) -> None:
    path = tmp_path / "City.mmdb"
    path.write_bytes(content)
    assert location(path) is None
    assert location(path) is None
    assert warnings(caplog) == [f"ip_lookup goes on without {path}: {problem}"]


def test_a_folder_in_place_of_a_database_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert location(tmp_path) is None
    assert len(warnings(caplog)) == 1


def test_a_database_with_damaged_records_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_city(tmp_path / "City.mmdb")
    content = bytearray(path.read_bytes())
    records, end = content.index(b"iso_code") - 40, content.index(b"\xab\xcd\xefMaxMind.com")
    content[records:end] = b"\xff" * (end - records)
    path.write_bytes(content)
    assert location(path) is None
    assert location(path, event=b'{"ip":"200.1.2.3"}') is None
    assert len(warnings(caplog)) == 1
    assert "damaged" in warnings(caplog)[0]


def test_a_database_of_ipv4_knows_no_ipv6(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_database(tmp_path / "City.mmdb", "City", {"81.2.69.0/24": BERLIN}, ip_version=4)
    assert location(path)["city"] == "Berlin"
    assert location(path, event=b'{"ip":"::ffff:81.2.69.142"}')["city"] == "Berlin"
    assert location(path, event=b'{"ip":"2001:db8:55::1"}') is None
    assert warnings(caplog) == []


def test_a_rule_without_databases_changes_nothing() -> None:
    assert location() is None
