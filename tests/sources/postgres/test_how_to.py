"""The pages about this source stay true: their config is valid, their error codes are the ones that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.config.loading import load

ROOT = Path(__file__).parents[3]
HOW_TO = (ROOT / "docs/how-to/postgres-source.md").read_text()


def test_the_config_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_URL", "postgresql://penstock@127.0.0.1/shop")
    (text,) = re.findall(r"```yaml\n(.*?)```", HOW_TO, re.DOTALL)
    for name, content in (
        ("as it stands", text),
        ("all options", re.sub(r"^    # ", "    ", text, flags=re.MULTILINE)),
    ):
        path = tmp_path / f"{name}.yaml"
        path.write_text(content)
        source = load(path).sources["shop"]
        assert source.model_dump(include={"copy_", "slot", "publication", "workers"}) == {
            "copy_": True, "slot": "penstock", "publication": "penstock", "workers": 2,
        }  # fmt: skip


def test_every_error_is_explained() -> None:
    package = ROOT / "penstock/sources/postgres"
    raised = {code for path in package.rglob("*.py") for code in re.findall(r"PEN-PGS-(\d{3})", path.read_text())}
    table = HOW_TO[HOW_TO.index("## What goes wrong") :]
    assert raised == set(re.findall(r"`(?:PEN-PGS-)?(\d{3})`", table))
