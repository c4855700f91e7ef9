"""A task stages the newest bundles of what it reads, wherever its batches are cut, and accounts for all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from penstock.conflation.batch_plan import plan_batch
from penstock.conflation.bundle import Bundle, Place
from penstock.conflation.kinds import Sync
from penstock.destinations.contract import Part
from penstock.destinations.state import stager as stager_module
from penstock.destinations.state.staged_bundles import load_staged
from penstock.destinations.state.stager import BundleStager
from penstock.record import Record, entries, placed
from tests.conflation.samples import KINDS, bundle, told
from tests.destinations.state.bundles import record

versions = st.builds("{}.{}".format, st.integers(0, 1), st.integers(0, 4))


def stage(folder: Path, records: Sequence[Record], first: int = 0, size: int = 3, partition: int = 0) -> list[Part]:
    stager = BundleStager(folder, KINDS)
    for start in range(0, len(records), size):
        batch = placed(entries(records[start : start + size]), partition, first + start)
        outcome = stager.add(batch)
        assert outcome.kept.num_rows + outcome.skipped + outcome.failures.num_rows == batch.num_rows
    return stager.finish()


@st.composite
def words(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(sorted(KINDS)))
    mark = {"CC": "@", "L": "@", "D": "^"}.get(kind)
    return f"{kind}{draw(versions)}" + (f"{mark}{draw(versions)}" if mark else "")


@given(st.lists(st.tuples(words(), st.sampled_from(["hub1", "hub2"])), max_size=25), st.integers(0, 25))
def test_what_is_left_out_nobody_needs(
    tmp_path_factory: pytest.TempPathFactory, came: list[tuple[str, str]], cut: int
) -> None:
    """Two tasks, each in small batches: the plan of what they stage is the plan of everything."""
    folder = tmp_path_factory.mktemp("stage")
    bundles = [bundle(word, offset, source) for offset, (word, source) in enumerate(came)]
    records = [record(each) for each in bundles]
    parts = stage(folder, records[:cut]) + stage(folder, records[cut:], first=min(cut, len(records)))
    found = load_staged(parts, KINDS)
    assert sum(part.rows for part in parts) == len(bundles)
    assert len(found.bundles) + sum(found.conflated.values()) == len(bundles)
    whole, left = plan_batch(KINDS, bundles), plan_batch(KINDS, found.bundles)
    for source in ("hub1", "hub2"):
        writes, wanted = ([work for work in plan.writes if work.unit.source == source] for plan in (left, whole))
        assert writes == wanted
    assert {each.bundle for each in left.waiting} == {each.bundle for each in whole.waiting}
    for each in found.bundles:
        assert json.loads(found.data(each)) == json.loads(records[each.place.offset].data or b"")
    complete = [each for each in found.bundles if KINDS[each.kind].sync is Sync.COMPLETE]
    assert len({(each.source, each.kind) for each in complete}) == len(complete)


def test_much_is_chosen_from_more_than_once_and_spills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stager_module, "MOST_ROWS", 8)
    came = [record(bundle(f"A0.{number}", number, f"hub{number % 7}")) for number in range(100)]
    (part,) = stage(tmp_path, came)
    found = load_staged([part], KINDS)
    assert part.rows == 100
    assert sorted(each.version.generation for each in found.bundles) == list(range(93, 100))
    assert sum(found.conflated.values()) == 93


def test_what_is_no_bundle_fails_and_the_rest_is_staged(tmp_path: Path) -> None:
    stager = BundleStager(tmp_path, KINDS)
    rows = [record(bundle("A0.1")), Record(b"no json"), Record(b'{"source": "hub1"}'), Record(None)]
    outcome = stager.add(placed(entries(rows), 0, 0))
    assert (outcome.kept.num_rows, outcome.failures.num_rows) == (1, 3)
    assert sum(part.rows for part in stager.finish()) == 1


def test_a_bundle_knows_its_place_over_all_partitions(tmp_path: Path) -> None:
    parts = stage(tmp_path, [record(bundle("A0.1"))], first=40, partition=3)
    parts += stage(tmp_path, [record(bundle("D0.2^0.1")), record(bundle("D0.3^0.1"))], first=7, partition=1)
    found = load_staged(parts, KINDS)
    assert {told([each]): each.place for each in found.bundles} == {
        "A0.1": Place(3, 40),
        "D0.2": Place(1, 7),
        "D0.3": Place(1, 8),
    }
    assert all(isinstance(each, Bundle) for each in found.bundles)
