"""The row of a version, which one writer at a time moves on: who has it decides whether a change is made."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.conflation.version import Version
from penstock.destinations.state.store.bookkeeping import Bookkeeping, KindIs
from penstock.destinations.state.store.contract import StateChange
from penstock.destinations.state.store.state_connection import Answer, StateConnection, Statement, Value
from penstock.errors import TransientError


def questions(books: Bookkeeping, change: StateChange) -> list[Statement]:
    """What ``may_change`` must know. The rows that are found stay as they are until the transaction ends."""
    asked = [Statement(books.find_version, {"source": change.source, "kind": change.kind})]
    if change.rests_on is not None:
        asked.append(Statement(books.share_version, {"source": change.source, "kind": change.rests_on.kind}))
    return asked


def may_change(change: StateChange, answers: Sequence[Answer]) -> KindIs | None:
    """What the version's row says, or ``None`` if the database has this version or a newer one. Raises
    ``TransientError`` if it has not what the change was decided on."""
    there, state = read_version(answers[0].rows[0]) if answers[0].rows else (None, KindIs.ACTIVE)
    if there is not None and there >= change.version:
        return None
    if change.adds_up and there != change.previous:
        raise _moved(change, change.kind, there)
    if change.rests_on is not None:
        found = read_version(answers[1].rows[0])[0] if answers[1].rows else None
        if found != change.rests_on.version:
            raise _moved(change, change.rests_on.kind, found)
    return state


def add_version(connection: StateConnection, change: StateChange) -> bool:
    """Add the row of a version; returns whether it was not there. Waits for whoever is adding it."""
    return bool(connection.run(connection.books.add_version, **_values(change)))


def move_version(books: Bookkeeping, change: StateChange) -> Statement:
    return Statement(books.move_version, _values(change))


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


def _values(change: StateChange) -> dict[str, Value]:
    return {
        "source": change.source,
        "kind": change.kind,
        "incarnation": change.version.incarnation,
        "generation": change.version.generation,
        "partition": change.place.partition,
        "offset": change.place.offset,
        "item": change.place.item,
        "table_name": change.table,
    }
