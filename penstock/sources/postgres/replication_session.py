"""One session with the server: look whether all is well, copy what is missing, follow changes.

A session ends with the first error of a connection, and the next begins from the book. Nothing that matters is kept
here: what the log has is in the book, what it does not have yet is kept by the slot.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import closing
from threading import Event

import psycopg

from penstock import faults
from penstock.errors import PenstockError
from penstock.sources.postgres.catalog.table_catalog import (
    Table,
    TypeKey,
    is_selected,
    layouts,
    relation_layout,
    stretches,
)
from penstock.sources.postgres.catalog.table_layout import Layout
from penstock.sources.postgres.config import PostgresSourceConfig
from penstock.sources.postgres.connection import Connection, Waits, connect, explaining
from penstock.sources.postgres.copy.copy_blocks import Stopped
from penstock.sources.postgres.copy.page_range import ranges
from penstock.sources.postgres.copy.table_copy import Copier, TableCopy
from penstock.sources.postgres.log_sink import Sink
from penstock.sources.postgres.progress import Keeper
from penstock.sources.postgres.rows.row_entries import left_entry
from penstock.sources.postgres.server_checks import check_replication_right, check_server, check_tables
from penstock.sources.postgres.stream.follower import Decoder, Stream
from penstock.sources.postgres.stream.publication import establish, extend
from penstock.sources.postgres.stream.relations import Relation
from penstock.sources.postgres.stream.slot import (
    Snapshot,
    another_server,
    check_reachable,
    check_room,
    confirmed_lsn,
    create_slot,
    end_of_wal,
    has_slot,
    holder_timeout,
    in_use,
    lost,
    not_ours,
    slot_holder,
    system_identifier,
    take_snapshot,
)
from penstock.sources.postgres.stream.walsender import Walsender
from penstock.sources.postgres.stream_position import ChangePosition, Lsn, lsn_text

_log = logging.getLogger("penstock.postgres")


class Session:
    """``run`` raises ``ServerAway`` if the server is gone, ``Stopped`` if we are to stop in the middle of something."""

    def __init__(
        self, config: PostgresSourceConfig, control: Connection, keeper: Keeper, sink: Sink, stopping: Event
    ) -> None:
        """``control``: a connection for questions, of this session alone."""
        self._config = config
        self._control = control
        self._keeper = keeper
        self._book = keeper.book
        self._sink = sink
        self._stopping = stopping
        self._types: dict[TypeKey, tuple[str, int]] = {}
        self._look_at = time.monotonic() + config.discover
        self._left_alone: set[str] = set()

    def run(self, once: bool) -> None:
        """Until we are to stop, or (``once``) everything that is committed now is in the log."""
        with explaining():
            check_server(self._control)
            tables = self._tables(begun=self._book.is_used())
            check_tables(tables, self._config.tables)
            self._open_slot()
            until = end_of_wal(self._control) if once else None
            while not self._stopping.is_set():
                self._copy_missing(tables)
                if self._follow(until) and not self._missing(tables):
                    return
                tables = self._tables()

    def _open_slot(self) -> None:
        """Have the slot."""
        with closing(self._replication()) as walsender:
            system = system_identifier(walsender, self._stopping)
            if self._book.system not in ("", system):
                raise another_server("it is another database cluster")
            self._book.system = system
            slot = self._config.slot
            if has_slot(self._control, slot):
                if self._config.copy_ and not (self._book.is_used() or self._book.makes_slot):
                    raise not_ours(slot)
                check_reachable(self._control, self._book.taken.commit)
                self._await_slot()
                self._check_unmoved()
                return
            if self._book.is_used():
                raise lost(slot, "it does not exist any more")
            check_room(self._control)
            self._book.makes_slot = True
            self._keeper.save()
            made = create_slot(walsender, slot, self._stopping)
            faults.reach("postgres.slot.made")
            _log.info("made the slot %s at %s", slot, lsn_text(made))
            self._book.confirmed = made
            if not self._config.copy_:
                begin = take_snapshot(self._control, walsender, self._config.slot, self._stopping).lsn
                self._book.taken = ChangePosition(begin)
                self._keeper.save()

    def _check_unmoved(self) -> None:
        """That nobody but us has read from the slot: what another has confirmed, the server does not send again."""
        slot, known = self._config.slot, self._book.confirmed
        confirmed = confirmed_lsn(self._control, slot)
        if known is not None and confirmed > known:
            raise lost(slot, f"somebody else has read it up to {lsn_text(confirmed)}, we had it to {lsn_text(known)}")
        self._book.confirmed = confirmed if known is None else known

    def _confirming(self, lsn: Lsn) -> None:
        """Keep how far the slot will be, before it is."""
        if self._book.confirmed is None or lsn > self._book.confirmed:
            self._book.confirmed = lsn
            self._keeper.save()

    def _copy_missing(self, tables: Sequence[Table]) -> None:
        """Copy tables until none is missing: each time with a new snapshot, if some could not be had in the last."""
        waits = Waits()
        while missing := self._missing(tables):
            with closing(self._replication()) as walsender:
                snapshot = take_snapshot(self._control, walsender, self._config.slot, self._stopping)
                moved = self._copy(snapshot, missing)
            if moved:
                waits.wait(self._stopping, f"{', '.join(moved)} changed while being copied")
            if self._stopping.is_set():
                raise Stopped
            tables = self._tables()

    def _copy(self, snapshot: Snapshot, missing: Sequence[Table]) -> list[str]:
        """Copy what the snapshot has of these tables; the names of those that it cannot give any more."""
        copies = self._plan(snapshot, missing)
        copier = Copier(self._config, snapshot, self._book, self._sink, self._stopping)
        return [copy.layout.namespace for copy in copier.run(copies, completed=self._keeper.save)]

    def _plan(self, snapshot: Snapshot, missing: Sequence[Table]) -> list[TableCopy]:
        filters = {table.oid: table.row_filter for table in missing}
        with self._control.transaction():
            snapshot.enter(self._control)
            found = layouts(self._control, self._config.publication, filters)
            return [
                TableCopy(
                    found[oid],
                    [part for stretch in stretches(self._control, oid) for part in ranges(stretch, filters[oid])],
                )
                for oid in filters
                if oid in found
            ]

    def _follow(self, until: Lsn | None) -> bool:
        """Take changes until there are tables to copy, or we are to stop; whether ``until`` was reached."""
        with closing(self._replication()) as connection:
            walsender = Walsender(connection, confirmed_lsn(self._control, self._config.slot))
            self._start(walsender)
            _log.info("following changes from %s", lsn_text(self._book.begin()))
            stream = Stream(walsender, Decoder(self._book, self), self._book, self._sink, self._confirming)
            try:
                return stream.follow(self._stopping, self._finds_new_tables, until)
            except psycopg.errors.UndefinedObject as error:
                # Changes are read as of when they were made; without the publication then, they cannot be.
                raise lost(self._config.slot, str(error)) from error

    def _start(self, walsender: Walsender) -> None:
        slot = self._config.slot
        while True:
            self._await_slot()
            try:
                return walsender.start(slot, self._config.publication, self._book.begin(), self._stopping)
            except psycopg.errors.ObjectInUse:
                continue
            except (
                psycopg.errors.ObjectNotInPrerequisiteState,
                psycopg.errors.UndefinedObject,
                psycopg.errors.UndefinedFile,
            ) as error:
                raise lost(slot, str(error)) from error

    def _await_slot(self) -> None:
        """Until nobody has the slot. A process of ours that was killed holds it until the server notices."""
        waits, deadline = Waits(), time.monotonic() + holder_timeout(self._control)
        while (holder := slot_holder(self._control, self._config.slot)) is not None:
            if time.monotonic() > deadline:
                raise in_use(self._config.slot, holder)
            waits.wait(self._stopping, f"the slot '{self._config.slot}' is in use by {holder}.")
            if self._stopping.is_set():
                raise Stopped

    def describe(self, relation: Relation) -> Layout | None:
        """How to take a relation's changes; not at all if it is not meant, or its copy is still to come."""
        if not is_selected(relation.namespace, self._config.tables):
            return None
        if self._config.copy_ and not self._book.has_copy(relation.namespace, relation.oid):
            self._look_at = 0.0
            return None
        return relation_layout(self._control, relation, self._types)

    def outgrew_copy(self, relation: Relation) -> bool:
        """Whether the key has a column that rows did not have when they were copied: a mirror of them cannot find the
        rows that changes are about."""
        copied = self._book.copied_columns(relation.namespace)
        if not (self._config.copy_ and copied and self._book.has_copy(relation.namespace, relation.oid)):
            return False
        new = set(relation_layout(self._control, relation, self._types).key) - copied
        if new:
            _log.warning("%s has a new key (%s): it is copied again", relation.namespace, ", ".join(sorted(new)))
        return bool(new)

    def _finds_new_tables(self) -> bool:
        """Now and then, and when the stream spoke of one: whether there are tables to copy before going on."""
        self._keeper.save_now_and_then()
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + self._config.discover
        followed = self._book.followed()
        return bool(self._missing(self._tables())) or followed != self._book.followed()

    def _tables(self, begun: bool = True) -> list[Table]:
        """The tables to follow, as of now; unless some were followed before, all that are meant or none."""
        publish = extend if begun else establish
        tables = publish(self._control, self._config.publication, self._config.tables, self)
        self._void_others(tables)
        return tables

    def left_alone(self, table: Table, why: str) -> None:
        """Said once."""
        if table.namespace not in self._left_alone:
            self._left_alone.add(table.namespace)
            _log.warning("%s cannot be followed yet: %s", table.namespace, why)

    def missed(self, fresh: Sequence[Table]) -> None:
        """Note in the log that changes of these tables were missed: if they are followed, then after a new copy."""
        for table in fresh:
            if self._book.has_copy(table.namespace, table.oid):
                _log.warning("changes of %s were missed; it must be copied again", table.namespace)
                self.leave(table.namespace)

    def _void_others(self, followed: Sequence[Table]) -> None:
        """The same for tables that are not meant, or not published, any more."""
        for namespace in self._book.followed() - {table.namespace for table in followed}:
            _log.info("%s is not followed any more", namespace)
            self.leave(namespace)

    def leave(self, namespace: str) -> None:
        self._sink.append(left_entry(namespace, self._book.tables[namespace]))
        self._book.void_copy(namespace)

    def _missing(self, tables: Sequence[Table]) -> list[Table]:
        if not self._config.copy_:
            return []
        return [table for table in tables if not self._book.has_copy(table.namespace, table.oid)]

    def _replication(self) -> Connection:
        try:
            return connect(self._config, replication=True)
        except PenstockError as error:
            raise check_replication_right(self._control, error) from error
