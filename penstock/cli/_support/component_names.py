"""Components as people name them: ``where``, or ``source/file`` where two kinds share a name."""

from __future__ import annotations

from penstock.config.problems import suggestion
from penstock.errors import PenstockError
from penstock.registry import Component, Kind, components


def find_components(name: str) -> list[Component]:
    """Every component that the name fits. Raises if there is none."""
    kind, slash, bare = name.rpartition("/")
    kinds = [k for k in Kind if not slash or k == kind]
    found = [components(k)[bare] for k in kinds if bare in components(k)]
    if not found:
        known = {n for k in Kind for n in components(k)}
        raise PenstockError("PEN-CFG-010", f"there is no component '{name}'.", suggestion(bare, known, "components"))
    return found


def find_component(name: str) -> Component:
    """The one component that the name fits. Raises if there are several."""
    found = find_components(name)
    if len(found) > 1:
        choices = " or ".join(f"{card.kind}/{card.name}" for card in found)
        raise PenstockError("PEN-CLI-001", f"'{name}' is the name of {len(found)} components.", f"Write {choices}.")
    return found[0]
