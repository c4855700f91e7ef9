"""What waits and what comes: which of both nobody needs any more, and what must not be overtaken."""

from __future__ import annotations

import pytest

from penstock.conflation.bundle import Place, Processed
from penstock.conflation.version import parse_version
from penstock.destinations.state.waiting_bundles import WaitingPack, compare_with_waiting
from tests.conflation.samples import KINDS, bundle, told


def waiting_groups(text: str) -> dict[str, list[str]]:
    """Each word is a bundle that waits; words that are joined with ``+`` began to wait together."""
    found: dict[str, list[str]] = {}
    for word in text.split():
        pack = WaitingPack.of([bundle(each, offset) for offset, each in enumerate(word.split("+"))])
        found.setdefault(pack.group, []).append(pack.about)
    return found


@pytest.mark.parametrize(
    ("waits", "comes", "superseded", "conflated", "held"),
    [
        ("A0.1", "A0.2", "A0.1", "", ""),
        ("A0.2", "A0.1", "", "A0.1", ""),
        ("A0.2", "A0.2", "", "A0.2", ""),
        ("A0.9", "A1.0", "A0.9", "", ""),
        ("A0.1 A0.2", "A0.3", "A0.1 A0.2", "", ""),
        ("A0.1", "C0.2", "", "", ""),
        ("CC0.7@0.2", "CC0.8@0.3", "CC0.7", "", ""),
        ("D0.1^0.3", "D0.2^0.3", "", "", "D"),
        ("D0.1^0.3+D0.2^0.3", "D0.3^0.4", "D0.2", "", ""),
        ("D0.1^0.4", "D0.2^0.3", "", "D0.2", "D"),
        ("D0.1^0.3", "CC0.4@0.1", "D0.1", "", ""),
        ("D0.1^0.3", "CC0.3@0.1", "", "", "D"),
        ("D0.1^0.3 CC0.4@0.1", "A0.1", "D0.1", "", ""),
        ("H0.1", "H0.2", "", "", "H"),
        ("H0.2", "H0.2", "", "H0.2", "H"),
    ],
)
def test_what_waits_and_what_comes(waits: str, comes: str, superseded: str, conflated: str, held: str) -> None:
    new = [bundle(word, 100 + offset) for offset, word in enumerate(comes.split())]
    found = compare_with_waiting(KINDS, new, waiting_groups(waits), {})
    assert [f"{pack.kind}{pack.version}" for pack in found.superseded] == superseded.split()
    assert [told([each]) for each in found.conflated] == conflated.split()
    assert found.held(KINDS) == {("hub1", kind) for kind in held.split()}


def test_what_may_be_written_by_now_is_not_superseded() -> None:
    new, waits = [bundle("A0.2", 100)], waiting_groups("A0.1")
    assert compare_with_waiting(KINDS, new, waits, {}, {("hub1", "A")}).superseded == []
    processed = {("hub1", "A"): Processed(parse_version("0.1"), Place(0, 0))}
    assert compare_with_waiting(KINDS, new, waits, processed).superseded == []


def test_a_base_that_is_written_makes_deltas_of_older_ones_needless() -> None:
    processed = {("hub1", "CC"): Processed(parse_version("0.4"), Place(0, 0))}
    found = compare_with_waiting(KINDS, [], waiting_groups("D0.1^0.3"), processed)
    assert [pack.kind for pack in found.superseded] == ["D"]


def test_a_pack_is_known_again_by_what_the_ledger_keeps_of_it() -> None:
    pack = WaitingPack.of([bundle("D0.2^0.3", 9), bundle("D0.1^0.3", 4)])
    assert WaitingPack.parse(pack.group, pack.about) == pack
    assert (str(pack.version), pack.places) == ("0.2", (Place(0, 4),))
