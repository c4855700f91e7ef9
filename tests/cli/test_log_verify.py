"""``penstock log verify`` and ``log repair``: damage is said to the byte and the offset, and never passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.projects import Project


def segment(shop: Project) -> Path:
    [found] = (shop.folder / "data" / "log" / "0").glob("*.seg")
    return found


def harm(shop: Project) -> None:
    content = bytearray(segment(shop).read_bytes())
    content[200] ^= 1
    segment(shop).write_bytes(content)


def test_a_whole_log_passes(shop: Project) -> None:
    ran = shop.penstock("log", "verify")
    assert ran.code == 0
    assert ran.out.split()[-8:] == ["0", "web", "1", "1", "8", *ran.out.split()[-3:-1], "0"]
    assert "MB/s" in ran.err
    [check] = json.loads(shop.penstock("log", "verify", "--json").out)
    assert (check["records"], check["frames"], check["whole"], check["damage"]) == (8, 1, True, [])


def test_damage_is_named_with_segment_byte_and_offsets_and_fails_the_verb(shop: Project) -> None:
    harm(shop)
    size = segment(shop).stat().st_size
    ran = shop.penstock("log", "verify")
    assert ran.code == 1
    assert f"{segment(shop)}, byte 0, {size:,} bytes: the frame's checksum is wrong; offsets 0..7" in ran.out
    assert "penstock log repair" in ran.err
    [check] = json.loads(shop.penstock("log", "verify", "--partition", "0", "--json").out)
    [damage] = check["damage"]
    assert damage == {
        "partition": 0,
        "segment": str(segment(shop)),
        "position": 0,
        "bytes": size,
        "first": 0,
        "end": 8,
        "why": "the frame's checksum is wrong",
    }
    assert check["whole"] is False


def test_a_repair_asks_says_what_it_costs_and_remembers(shop: Project) -> None:
    harm(shop)
    content = segment(shop).read_bytes()
    refused = shop.penstock("log", "repair", answer="n\n")
    assert refused.code == 1
    assert "Give up 8 offsets for good?" in refused.err
    assert segment(shop).read_bytes() == content
    ran = shop.penstock("log", "repair", answer="y\n")
    assert ran.code == 0
    assert "offsets 0..7 of 00000000000000000000.seg are gone" in ran.out
    [kept] = (shop.folder / "data" / "log" / "0" / "quarantine").glob("*.bytes")
    assert kept.read_bytes() == content
    assert str(kept.parent) in ran.out
    after = shop.penstock("log", "verify")
    assert after.code == 0
    assert "offsets 0..7 of 00000000000000000000.seg are gone since the repair of" in after.out
    assert shop.penstock("log", "show", "0..7").out == ""
    assert json.loads(shop.penstock("log", "current", "--json").out)[0] == {
        "partition": 0, "source": "web", "current": None, "next": 8,
    }  # fmt: skip


def test_a_repair_is_told_to_machines(shop: Project) -> None:
    harm(shop)
    [done] = json.loads(shop.penstock("log", "repair", "--yes", "--json").out)
    assert [(lost["first"], lost["end"]) for lost in done["lost"]] == [(0, 8)]
    assert (done["partition"], done["source"], done["head_problem"]) == (0, "web", None)
    assert json.loads(shop.penstock("log", "repair", "--yes", "--json").out) == []


def test_a_whole_log_is_not_repaired(shop: Project) -> None:
    content = segment(shop).read_bytes()
    ran = shop.penstock("log", "repair")
    assert (ran.code, ran.out) == (0, "")
    assert "nothing is damaged" in ran.err
    assert segment(shop).read_bytes() == content


def test_a_log_with_a_writer_is_not_repaired(shop: Project) -> None:
    harm(shop)
    content = segment(shop).read_bytes()
    with shop.open().log.writer("web"):
        ran = shop.penstock("log", "repair", "--yes")
    assert ran.code == 1
    assert "PEN-LOG-001" in ran.err
    assert "Stop the pipeline" in ran.err
    assert segment(shop).read_bytes() == content


@pytest.mark.parametrize("verb", ["verify", "repair"])
def test_a_partition_that_is_not_there_is_refused(shop: Project, verb: str) -> None:
    assert shop.penstock("log", verb, "-p", "9").code == 2


def test_a_log_that_was_never_written_is_whole(fresh: Project) -> None:
    assert json.loads(fresh.penstock("log", "verify", "--json").out) == []
    assert fresh.penstock("log", "verify").code == 0
    assert not (fresh.folder / "data").exists()
