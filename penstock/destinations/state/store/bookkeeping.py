"""The tables that a store keeps besides those of the state, and the statements over them.

All statements have their values as parameters, by name, and run on every engine that keeps state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from penstock.destinations.sql.dialect import Dialect
from penstock.destinations.state.store.reserved_tables import COLUMNS, PARKED, SEEN, TRANSPORT, VERSIONS
from penstock.flatten.inner_types import InnerType


class KindIs(StrEnum):
    """What the row of a version says of the kind's rows."""

    ACTIVE = "active"
    INACTIVE = "inactive"
    """Its source fell silent; the rows are still there."""
    DELETED = "deleted"
    """Its source fell silent, and the rows went: the same version is wanted again."""


@dataclass(frozen=True)
class Bookkeeping:
    """``locks`` and ``shares`` are what the engine adds to a query to lock its rows; ``or_nothing`` what it adds to an
    insert that may find the row there already."""

    dialect: Dialect
    locks: str = ""
    shares: str = ""
    or_nothing: str = ""

    @cached_property
    def create(self) -> tuple[str, ...]:
        types = self.dialect.types
        text, number, time = types[InnerType.STRING], types[InnerType.INT64], types[InnerType.TIMESTAMP]
        return (
            f"CREATE TABLE IF NOT EXISTS {self._versions} (source {text}, kind {text}, incarnation {number},"
            f' generation {number}, "partition" {number}, "offset" {number}, item {number}, state {text},'
            f" table_name {text}, updated_at {time}, PRIMARY KEY (source, kind))",
            f"CREATE TABLE IF NOT EXISTS {self._seen} (source {text}, seen_at {time}, PRIMARY KEY (source))",
            f"CREATE TABLE IF NOT EXISTS {self._parked} (source {text}, kind {text}, incarnation {number},"
            f" generation {number}, reason {text}, parked_at {time}, PRIMARY KEY (source, kind))",
            f"CREATE TABLE IF NOT EXISTS {self._columns} (table_name {text}, column_name {text},"
            " PRIMARY KEY (table_name, column_name))",
            f"CREATE TABLE IF NOT EXISTS {self._transport} (name {text}, payload {self.dialect.json_type},"
            f" created_at {time}, updated_at {time})",
        )

    # Versions

    @cached_property
    def find_versions(self) -> str:
        return self._select_versions + self.locks

    @cached_property
    def share_versions(self) -> str:
        return self._select_versions + self.shares

    @cached_property
    def _select_versions(self) -> str:
        """In one order: of two who lock the same rows, one waits for the other."""
        return (
            f"SELECT source, incarnation, generation, state FROM {self._versions}"
            f" WHERE {self._is('kind')} AND {self._among} ORDER BY source"
        )

    @cached_property
    def add_versions(self) -> str:
        return (
            f"INSERT INTO {self._versions} (source, kind, {_LISTED}, table_name, state, updated_at)"
            f" SELECT source, {self._text('kind')}, {_LISTED}, {self._text('table_name')}, '{KindIs.ACTIVE}', now()"
            f" FROM {self._given_versions} AS u{self.or_nothing}"
        )

    @cached_property
    def move_versions(self) -> str:
        values = ", ".join(f'"{name}" = u."{name}"' for name in _VERSION)
        return (
            f"UPDATE {self._versions} AS v SET {values}, table_name = {self._text('table_name')},"
            f" state = '{KindIs.ACTIVE}', updated_at = now() FROM {self._given_versions} AS u"
            f" WHERE v.source = u.source AND v.kind = {self._given('kind')}"
        )

    @property
    def _given_versions(self) -> str:
        """A relation with a row for each of the sources given."""
        numbers = ", ".join(f"""{self._unnest(f"{name}s", "bigint")} AS "{name}\"""" for name in _VERSION)
        return f"(SELECT {self._unnest('sources', 'text')} AS source, {numbers})"

    @cached_property
    def versions_of_sources(self) -> str:
        return (
            f'SELECT source, kind, incarnation, generation, state, "partition", "offset", item FROM {self._versions}'
            f" WHERE {self._among}"
        )

    @cached_property
    def all_versions(self) -> str:
        return (
            f"SELECT source, kind, incarnation, generation, state, table_name, updated_at FROM {self._versions}"
            " ORDER BY source, kind"
        )

    # Sources

    @cached_property
    def tables_of_source(self) -> str:
        return f"SELECT DISTINCT table_name FROM {self._versions} WHERE {self._is('source')} ORDER BY table_name"

    @cached_property
    def lock_source(self) -> str:
        return f"SELECT kind FROM {self._versions} WHERE {self._is('source')} ORDER BY kind{self.locks}"

    @cached_property
    def revive_sources(self) -> str:
        return (
            f"UPDATE {self._versions} SET state = '{KindIs.ACTIVE}'"
            f" WHERE {self._among} AND state = '{KindIs.INACTIVE}' RETURNING source"
        )

    @cached_property
    def note_seen(self) -> str:
        return (
            f"INSERT INTO {self._seen} (source, seen_at) SELECT {self._unnest('sources', 'text')}, now()"
            " ON CONFLICT (source) DO UPDATE SET seen_at = EXCLUDED.seen_at"
        )

    def silent_sources(self, one: bool) -> str:
        """The sources of which nothing came for ``silent_for`` seconds; with ``one`` only if ``source`` is one."""
        chosen = f" WHERE v.source = {self._given('source')}" if one else ""
        return (
            f"SELECT v.source FROM {self._versions} AS v LEFT JOIN {self._seen} AS s ON s.source = v.source{chosen}"
            f" GROUP BY v.source HAVING bool_or(v.state = '{KindIs.ACTIVE}') AND extract(epoch FROM now())"
            f" - extract(epoch FROM greatest(max(v.updated_at), max(s.seen_at))) >= {self._given('silent_for')}"
            " ORDER BY v.source"
        )

    def set_state(self, state: KindIs) -> str:
        return f"UPDATE {self._versions} SET state = '{state}' WHERE {self._is('source')}"

    @cached_property
    def forget(self) -> tuple[str, ...]:
        return tuple(f"DELETE FROM {table} WHERE {self._is('source')}" for table in self._of_sources)

    # Parked bundles

    @cached_property
    def parked_of_sources(self) -> str:
        return f"SELECT source, kind, incarnation, generation, reason FROM {self._parked} WHERE {self._among}"

    @cached_property
    def unpark(self) -> str:
        """Deletes what was given up of a kind, unless it is newer than the version given."""
        return (
            f"DELETE FROM {self._parked} AS p USING {self._given_versions} AS u"
            f" WHERE p.source = u.source AND p.kind = {self._given('kind')} AND (p.incarnation < u.incarnation"
            " OR p.incarnation = u.incarnation AND p.generation <= u.generation)"
        )

    @cached_property
    def park(self) -> str:
        given = ", ".join(map(self._given, ("source", "kind", "incarnation", "generation", "reason")))
        return (
            f"INSERT INTO {self._parked} (source, kind, incarnation, generation, reason, parked_at)"
            f" VALUES ({given}, now()) ON CONFLICT (source, kind) DO UPDATE SET incarnation = EXCLUDED.incarnation,"
            " generation = EXCLUDED.generation, reason = EXCLUDED.reason, parked_at = EXCLUDED.parked_at"
        )

    # Columns that bundles fill

    @cached_property
    def filled_columns(self) -> str:
        return f"SELECT column_name FROM {self._columns} WHERE {self._is('table_name')}"

    @cached_property
    def add_filled(self) -> str:
        given = ", ".join(map(self._given, ("table_name", "column_name")))
        return f"INSERT INTO {self._columns} VALUES ({given}) ON CONFLICT DO NOTHING"

    # Positions

    @cached_property
    def positions(self) -> str:
        return f"SELECT {PARTITION}, {_OFFSET} FROM {self._transport} WHERE {self._is('name')}"

    @cached_property
    def move_position(self) -> str:
        return (
            f"UPDATE {self._transport} SET payload = {self._payload}, updated_at = now() WHERE {self._is('name')}"
            f" AND {PARTITION} = {self._given('partition')} AND {_OFFSET} < {self._given('offset')}"
        )

    @cached_property
    def add_position(self) -> str:
        there = f"SELECT 1 FROM {self._transport} WHERE {self._is('name')} AND {PARTITION} = {self._given('partition')}"
        return (
            f"INSERT INTO {self._transport} (name, payload, created_at, updated_at)"
            f" SELECT CAST({self._given('name')} AS text), {self._payload}, now(), now()"
            f" WHERE NOT EXISTS ({there}){self.or_nothing}"
        )

    @property
    def _payload(self) -> str:
        return f"CAST({self._given('payload')} AS {self.dialect.json_type})"

    @property
    def _among(self) -> str:
        return f"source IN (SELECT {self._unnest('sources', 'text')})"

    def _unnest(self, name: str, inner: str) -> str:
        return f"unnest(CAST({self._given(name)} AS {inner}[]))"

    def _text(self, name: str) -> str:
        return f"CAST({self._given(name)} AS text)"

    def _is(self, *names: str) -> str:
        return " AND ".join(f"{name} = {self._given(name)}" for name in names)

    def _given(self, name: str) -> str:
        return self.dialect.parameter(name)

    @property
    def _of_sources(self) -> tuple[str, ...]:
        return self._versions, self._seen, self._parked

    @property
    def _seen(self) -> str:
        return self.dialect.relation(SEEN)

    @property
    def _versions(self) -> str:
        return self.dialect.relation(VERSIONS)

    @property
    def _parked(self) -> str:
        return self.dialect.relation(PARKED)

    @property
    def _columns(self) -> str:
        return self.dialect.relation(COLUMNS)

    @property
    def _transport(self) -> str:
        return self.dialect.relation(TRANSPORT)


_VERSION = ("incarnation", "generation", "partition", "offset", "item")
_LISTED = ", ".join(f'"{name}"' for name in _VERSION)
PARTITION = "CAST(payload ->> 'partition' AS bigint)"
_OFFSET = "CAST(payload ->> 'offset' AS bigint)"
