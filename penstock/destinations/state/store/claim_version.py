"""The rows of versions, which one writer at a time moves on: who has them decides whether a change is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.conflation.version import Version
from penstock.destinations.state.store.bookkeeping import Bookkeeping, KindIs
from penstock.destinations.state.store.contract import StateChange
from penstock.destinations.state.store.state_connection import Answer, Statement, Value
from penstock.errors import TransientError

Versions = Mapping[str, tuple[Version, KindIs]]
"""Of sources the version that counts as written, and what its row says."""


def questions(books: Bookkeeping, changes: Sequence[StateChange]) -> list[Statement]:
    """What ``may_change`` must know of changes of one kind. The rows that are found stay as they are until the
    transaction ends."""
    sources, rests_on = sorted(change.source for change in changes), changes[0].rests_on
    asked = [Statement(books.find_versions, {"sources": sources, "kind": changes[0].kind})]
    if rests_on is not None:
        asked.append(Statement(books.share_versions, {"sources": sources, "kind": rests_on.kind}))
    return asked


def read_answers(answers: Sequence[Answer]) -> list[Versions]:
    return [{str(source): read_version(row) for source, *row in answer.rows} for answer in answers]


def may_change(change: StateChange, versions: Versions, rested_on: Versions) -> bool:
    """Whether the database has neither this version nor a newer one. Raises ``TransientError`` if it has not what the
    change was decided on."""
    there, _ = versions.get(change.source, (None, None))
    if there is not None and there >= change.version:
        return False
    if change.adds_up and there != change.previous:
        raise _moved(change, change.kind, there)
    if change.rests_on is not None:
        found, _ = rested_on.get(change.source, (None, None))
        if found != change.rests_on.version:
            raise _moved(change, change.rests_on.kind, found)
    return True


def add_versions(books: Bookkeeping, changes: Sequence[StateChange]) -> Statement:
    """Adds the rows of versions, where they are not there. Waits for whoever is adding one."""
    return Statement(books.add_versions, given_versions(changes) | {"table_name": changes[0].table})


def move_versions(books: Bookkeeping, changes: Sequence[StateChange]) -> Statement:
    return Statement(books.move_versions, given_versions(changes) | {"table_name": changes[0].table})


def given_versions(changes: Sequence[StateChange]) -> dict[str, Value]:
    """What statements over the versions of changes are given."""
    return {
        "kind": changes[0].kind,
        "sources": [change.source for change in changes],
        "incarnations": [change.version.incarnation for change in changes],
        "generations": [change.version.generation for change in changes],
        "partitions": [change.place.partition for change in changes],
        "offsets": [change.place.offset for change in changes],
        "items": [change.place.item for change in changes],
    }


def read_version(row: Sequence[object]) -> tuple[Version, KindIs]:
    """The version that counts as written, and what its row says. Of rows that went, the same version is wanted again:
    the one before it counts."""
    incarnation, generation, state = (str(value) for value in row)
    return Version(int(incarnation), int(generation) - (state == KindIs.DELETED)), KindIs(state)


def _moved(change: StateChange, kind: str, there: Version | None) -> TransientError:
    found = "none" if there is None else str(there)
    return TransientError(
        "PEN-DST-144",
        f"'{kind}' of source '{change.source}' has changed meanwhile: the database has {found}.",
        "Nothing to do: it is looked up again.",
    )
