"""Verbs that ask before they do something: scripts get no half output, and nothing is done that nobody agreed to."""

from __future__ import annotations

import json

import pytest

from tests.cli.projects import Project

VERBS = [("failed", "drop", "--all"), ("offset", "rewind", "warehouse", "--to", "2"), ("log", "repair")]


@pytest.fixture
def harmed(shop: Project) -> Project:
    """A log with a frame whose checksum is wrong."""
    segment = next((shop.folder / "data" / "log" / "0").glob("*.seg"))
    content = bytearray(segment.read_bytes())
    content[-9] ^= 1
    segment.write_bytes(content)
    return shop


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_with_nobody_to_answer_it_is_refused_and_nothing_goes_to_stdout(
    harmed: Project, verb: tuple[str, ...], options: tuple[str, ...]
) -> None:
    ran = harmed.penstock(*verb, *options)
    assert (ran.code, ran.out) == (1, "")
    assert "PEN-CLI-005" in ran.err
    assert "--yes" in ran.err


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("answer", ["n\n", "\n", "maybe\n"])
def test_whatever_is_no_yes_is_a_no(harmed: Project, verb: tuple[str, ...], answer: str) -> None:
    ran = harmed.penstock(*verb, "--json", answer=answer)
    assert (ran.code, ran.out) == (1, "")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_after_a_yes_there_is_nothing_but_json_on_stdout(harmed: Project, verb: tuple[str, ...], answer: str) -> None:
    ran = harmed.penstock(*verb, "--json", answer=answer)
    assert ran.code == 0
    assert ran.out[0] in "[{"
    assert json.loads(ran.out)
