"""The short form of ``make abuse``: what an honest client must not notice, and what a worker may need."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.abuse.run import RSS_LIMIT_MIB, abuse

SHORT = (
    "half-open",
    "idle, announced",
    "tiny chunks",
    "held bodies",
    "packed bodies",
    "template bombs",
    "bad lines",
    "keys that are not there",
    "bundles",
    "bundles that are none",
    "fuzz",
)
LONGEST_MS = 10_000
"""For a hang, not for a slow machine: some of these stopped a worker for minutes."""


@pytest.mark.timeout(600)
def test_whatever_others_send_an_honest_client_is_answered(tmp_path: Path) -> None:
    rows = abuse(tmp_path, SHORT, seconds=2.0, between=0.5)
    assert [row.attack for row in rows] == list(SHORT)
    for row in rows:
        assert not row.attacked.bad, row.line()
        assert row.rss_mib < RSS_LIMIT_MIB, row.line()
        assert len(row.attacked.milliseconds) > 3, row.line()
        assert max(row.attacked.milliseconds) < LONGEST_MS, row.line()
        assert max(row.attacked.health) < LONGEST_MS, row.line()
        assert not {"500", "502"} & row.statuses.keys(), row.line()


def test_the_readme_states_the_memory_that_is_checked() -> None:
    root = Path(__file__).parents[2]
    stated = re.findall(r"below \**(\d+) MiB", (root / "README.md").read_text())
    assert stated == [str(RSS_LIMIT_MIB)]
    assert f"**{RSS_LIMIT_MIB} MiB**" in (root / "docs" / "explanation" / "under-attack.md").read_text()
