"""The names of a source's tables and columns at the target."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2s

import pyarrow as pa

from penstock.destinations.sql.stage.allowed_tables import AllowedTables
from penstock.destinations.sql.stage.table_name import ANY_TABLE, Choice, TableChooser
from penstock.flatten.column_naming import column_name

NOTHING: Mapping[str, str] = {}
_DIGITS = 8


class MirrorTableChooser:
    """The table of each namespace, by a template over the namespace and its parts."""

    def __init__(self, template: str, max_name: int, allowed: AllowedTables = ANY_TABLE) -> None:
        self._names = TableChooser(template, max_name, allowed)
        self._known: dict[str, Choice] = {}

    def table(self, namespace: str) -> Choice:
        """The table or, if there is none because of an error, what is wrong. Neither: its records are skipped."""
        found = self._known.get(namespace)
        if found is None:
            found = self._known[namespace] = self._rendered(namespace)
        return found

    def _rendered(self, namespace: str) -> Choice:
        schema, _, table = namespace.rpartition(".")
        parts = {"namespace": namespace, "schema": schema, "table": table}
        (choice,) = self._names.choose(pa.array([json.dumps(parts).encode()], pa.binary()))
        return choice


def column_names(sources: Iterable[str], max_name: int, taken: Mapping[str, str] = NOTHING) -> Mapping[str, str]:
    """Our name for each column of a source. If several columns would share a name, it goes to the one that is spelled
    exactly so; the others get digits of their own appended, so that no column is mistaken for another.

    ``taken`` has the names that are already given, each with its source column: they never change.
    """
    settled = {source: name for name, source in taken.items()}
    plain = {source: column_name([source], max_name) for source in sources if source not in settled}
    claims = Counter(plain.values())
    new = {
        source: name
        if name not in taken and (claims[name] == 1 or source == name)
        else _name_with_digest(source, name, max_name)
        for source, name in plain.items()
    }
    return {**settled, **new}


def _name_with_digest(source: str, name: str, max_name: int) -> str:
    digest = blake2s(source.encode("utf-8", "surrogatepass"), digest_size=_DIGITS // 2).hexdigest()
    return f"{name[: max_name - _DIGITS - 1]}_{digest}"
