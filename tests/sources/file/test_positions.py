"""How far files were read: found by name without a search, and known after whatever happens to the summary."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.sources.contract import SourceContext
from penstock.sources.file.config import FileConfig
from penstock.sources.file.discovery import may_be_copy
from penstock.sources.file.file_progress import Position, Positions
from penstock.sources.file.source import FileSource
from penstock.testing.source import log_records
from tests.sources.file.test_rotation import live, read_once, write

__all__ = ["live"]

NAMES = st.builds(
    lambda folder, base, generation, packed: f"/{folder}/{base}{generation}{packed}",
    st.sampled_from("ab"),
    st.sampled_from(["app.log", "app", "x-1.ndjson", "-1", "log.gz"]),
    st.sampled_from(["", ".1", "-2", ".1.2", "-20260131"]),
    st.sampled_from(["", ".gz", ".zst"]),
)


@given(st.lists(st.tuples(st.integers(0, 5), NAMES)), NAMES)
def test_the_index_finds_what_a_search_through_all_would(kept: list[tuple[int, str]], name: str) -> None:
    positions, model = Positions(), dict[str, Position]()
    for number, file in kept:
        position = Position(file, str(number))
        positions.keep(position)
        model.pop(position.id, None)
        model[position.id] = position
    path = Path(name)
    newest_first = list(reversed(model.values()))
    akin = [p for p in newest_first if Path(p.file).parent == path.parent and may_be_copy(path.name, Path(p.file).name)]
    assert positions.related(path) == akin
    assert positions.at(path) == [p for p in newest_first if p.file == name]


DAMAGES = [b"", b"{", b"null", b"[]", b'{"log_offset": 1}', b'{"log_offset": 9, "files": ["{}"]}', b"\xff\x00" * 50]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_summary_is_made_again_from_the_log(
    tmp_path: Path, live: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    write(live, 1, 2)
    write(live.with_name("b.ndjson"), 3)
    assert read_once(tmp_path) == [1, 2, 3]
    (tmp_path / "state/positions.json").write_bytes(damage)
    write(live, 4)
    assert read_once(tmp_path) == [1, 2, 3, 4]
    assert "positions.json is damaged" in caplog.text
    assert json.loads((tmp_path / "state/positions.json").read_bytes())["files"]


def test_a_damaged_summary_that_the_log_cannot_replace_is_not_guessed_at(tmp_path: Path, live: Path) -> None:
    context = SourceContext("orders", tmp_path / "log", '{"segment_bytes": 600}', tmp_path / "state")
    for name in "abcdef":
        write(live.with_name(f"{name}.ndjson"), *range(5))
    follower = FileSource(FileConfig.model_validate({"path": tmp_path / "in", "batch_bytes": 20}), context)
    follower.run(Event(), once=True)
    oldest, *_ = sorted((tmp_path / "log/0").glob("*.seg"))
    oldest.unlink()
    summary, kept = tmp_path / "state/positions.json", tmp_path / "kept"
    shutil.copyfile(summary, kept)
    before = len(log_records(tmp_path / "log"))
    summary.write_bytes(b"")
    with pytest.raises(PenstockError, match=r"PEN-FILE-002.*positions\.json is damaged"):
        follower.run(Event(), once=True)
    shutil.copyfile(kept, summary)
    follower.run(Event(), once=True)
    assert len(log_records(tmp_path / "log")) == before
