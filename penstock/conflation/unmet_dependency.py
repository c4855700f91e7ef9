"""Whether a bundle may be written now, as far as other kinds are concerned; if not, why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.conflation.bundle import Bundle, Processed
from penstock.conflation.kinds import Dependency, Match
from penstock.conflation.version import Version


@dataclass(frozen=True)
class Parked:
    """A bundle that was given up."""

    version: Version
    why: str


def unmet_dependency(
    bundle: Bundle,
    needed: Dependency | None,
    processed: Mapping[str, Processed],
    parked: Mapping[str, Parked],
) -> str | None:
    """What the bundle waits for, in words; ``None`` if it waits for nothing. ``processed`` and ``parked`` are those of
    its source, by kind."""
    if needed is None:
        return None
    there = processed.get(needed.kind)
    if there is not None and not there.is_there:
        there = None
    if needed.implicit:
        # What a source had written before it was started again says nothing of what it has now.
        if there is not None and there.version.incarnation >= bundle.version.incarnation:
            return None
        return f"waits for any {needed.kind} of incarnation {bundle.version.incarnation}{_told(needed, parked, None)}"
    wanted = bundle.needs
    assert wanted is not None, "what names no version was refused before"
    if there is not None and (there.version == wanted or (needed.match is Match.AT_LEAST and there.version > wanted)):
        return None
    least = " or newer" if needed.match is Match.AT_LEAST else ""
    found = "none is there" if there is None else f"{there.version} is there"
    return f"waits for {needed.kind} {wanted}{least}; {found}{_told(needed, parked, wanted)}"


def _told(needed: Dependency, parked: Mapping[str, Parked], wanted: Version | None) -> str:
    """Why what is waited for was given up, if it was."""
    given_up = parked.get(needed.kind)
    if given_up is None or (wanted is not None and given_up.version < wanted):
        return ""
    return f"; {needed.kind} {given_up.version} has failed: {given_up.why}"
