"""A checkpoint that has run ahead is cut back to where a copy of the ledger stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.engine.backup.checkpoint_cut import Cut, LedgerPosition, cut_files, find_cut, link_files
from penstock.engine.spark.spark_checkpoints import find_moved_state

ENDS = [{0: 10}, {0: 10, 1: 5}, {0: 30, 1: 5}, {0: 40, 1: 9}]
"""Where the batches 0 to 3 end."""


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def make(folder: Path, begun: int = 3, completed: int = 3, oldest_state: int = 1) -> Path:
    """A checkpoint as Spark leaves it, with two parts of the state."""
    write(folder / "metadata", "{}")
    for batch in range(begun + 1):
        end = json.dumps({str(p): offset for p, offset in ENDS[batch].items()})
        write(folder / "offsets" / str(batch), f"v1\n{{}}\n{end}")
        write(folder / "offsets" / f".{batch}.crc")
    for batch in range(completed + 1):
        write(folder / "commits" / str(batch), "v1\n{}")
    for part in "01":
        for version in range(oldest_state, completed + 2):
            write(folder / "state" / "0" / part / f"{version}.changelog")
        write(folder / "state" / "0" / part / "SSTs" / "000008-e0.sst")
    write(folder / "state" / "0" / "_metadata" / "v2" / "0")
    return folder


def position(committed: dict[int, int], under_way: dict[int, int] | None = None) -> LedgerPosition:
    return LedgerPosition("a-01234567", committed, under_way or {})


@pytest.mark.parametrize(
    ("stands", "found"),
    [
        (position({0: 40, 1: 9}), Cut(3, 3)),
        (position({0: 30, 1: 5}), Cut(2, 2)),
        (position({0: 10, 1: 5}), Cut(1, 1)),
        (position({0: 10}), Cut(0, 0)),
        (position({0: 10, 1: 0, 7: 3}), Cut(0, 0)),
        # A batch that the ledger has begun is run again.
        (position({0: 10, 1: 5}, {0: 30}), Cut(2, 1)),
        (position({0: 0}, {0: 10}), Cut(0, -1)),
        # Where no batch of Spark's ends, nothing fits.
        (position({0: 20, 1: 5}), None),
        (position({0: 5}), None),
        (position({0: 50, 1: 9}), None),
    ],
)
def test_the_batch_is_found_that_ends_where_the_ledger_stands(
    tmp_path: Path, stands: LedgerPosition, found: Cut | None
) -> None:
    assert find_cut(make(tmp_path / "c"), stands) == found


def test_a_batch_that_spark_has_not_completed_is_run_again_too(tmp_path: Path) -> None:
    """The ledger knew it before Spark did."""
    checkpoint = make(tmp_path / "c", begun=3, completed=2)
    assert find_cut(checkpoint, position({0: 40, 1: 9})) is None, "there is no state of it"
    assert find_cut(checkpoint, position({0: 30, 1: 5}, {0: 40, 1: 9})) == Cut(3, 2)


def test_nothing_fits_if_the_state_from_then_is_gone(tmp_path: Path) -> None:
    checkpoint = make(tmp_path / "c", oldest_state=3)
    assert find_cut(checkpoint, position({0: 30, 1: 5})) == Cut(2, 2)
    assert find_cut(checkpoint, position({0: 10, 1: 5})) is None


def test_only_what_was_there_at_that_moment_is_kept(tmp_path: Path) -> None:
    checkpoint = make(tmp_path / "c")
    kept = {str(path.relative_to(checkpoint)) for path in cut_files(checkpoint, Cut(2, 1))}
    assert {name for name in kept if name.startswith("offsets")} == {"offsets/0", "offsets/1", "offsets/2"}
    assert {name for name in kept if name.startswith("commits")} == {"commits/0", "commits/1"}
    versions = {name for name in kept if name.startswith("state/0/1/")}
    assert versions == {"state/0/1/1.changelog", "state/0/1/2.changelog", "state/0/1/SSTs/000008-e0.sst"}
    assert {"metadata", "state/0/_metadata/v2/0"} <= kept


def test_linked_files_stay_when_spark_removes_them(tmp_path: Path) -> None:
    checkpoint, linked = make(tmp_path / "c"), tmp_path / "linked"
    link_files(checkpoint, linked)
    (checkpoint / "state" / "0" / "0" / "3.changelog").unlink()
    assert find_cut(checkpoint, position({0: 30, 1: 5})) is None
    assert find_cut(linked, position({0: 30, 1: 5})) == Cut(2, 2)


def test_spark_finds_the_schemas_of_a_state_that_was_moved(tmp_path: Path) -> None:
    schema = "/state/0/_stateSchema/default/0_b06"
    note = tmp_path / "here" / "state" / "0" / "_metadata" / "v2" / "0"
    stores = [{"storeName": "default", "stateSchemaFilePaths": [f"file:/old/data/c{schema}"]}]
    write(note, "v2\n" + json.dumps({"operatorInfo": {"operatorId": 0}, "stateStoreInfo": stores}))
    write(note.with_name(".0.crc"))
    find_moved_state(tmp_path / "here")
    version, content = note.read_text().splitlines()
    (store,) = json.loads(content)["stateStoreInfo"]
    assert (version, store["stateSchemaFilePaths"]) == ("v2", [f"file:{tmp_path}/here{schema}"])
    assert not note.with_name(".0.crc").exists()
    before = note.stat().st_mtime_ns
    find_moved_state(tmp_path / "here")
    assert note.stat().st_mtime_ns == before
