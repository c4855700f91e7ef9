"""One session with the server: check it, copy missing tables, follow changes.

A session ends with the first error of a connection; the next one starts from the progress. Nothing that matters is kept
here: the progress knows what the log has, and the slot keeps what the log does not have yet.
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
    leaf_tables,
    relation_layout,
)
from penstock.sources.postgres.catalog.table_layout import Layout
from penstock.sources.postgres.config import PostgresConfig
from penstock.sources.postgres.connection import Connection, Waits, connect, translate_errors
from penstock.sources.postgres.copy.copy_blocks import Stopped
from penstock.sources.postgres.copy.outgrown_copy import why_outgrown
from penstock.sources.postgres.copy.page_range import ranges
from penstock.sources.postgres.copy.table_copy import Copier, TableCopy
from penstock.sources.postgres.log_sink import Sink
from penstock.sources.postgres.progress import ProgressStore
from penstock.sources.postgres.rows.row_entries import void_entry
from penstock.sources.postgres.server_checks import check_replication_right, check_server, check_tables
from penstock.sources.postgres.stream import server_history
from penstock.sources.postgres.stream import slot as replication_slot
from penstock.sources.postgres.stream.follower import Decoder, Stream
from penstock.sources.postgres.stream.publication import publish_all, publish_new
from penstock.sources.postgres.stream.relations import Relation
from penstock.sources.postgres.stream.walsender import Walsender
from penstock.sources.postgres.stream_position import ChangePosition, Lsn, lsn_text

_log = logging.getLogger("penstock.postgres")


class Session:
    """``run`` raises ``ServerUnavailable`` if the server is gone, ``Stopped`` if we are told to stop in the middle."""

    def __init__(
        self, config: PostgresConfig, control: Connection, store: ProgressStore, sink: Sink, stopping: Event
    ) -> None:
        """``control``: a connection for queries, used by this session alone."""
        self._config = config
        self._control = control
        self._store = store
        self._progress = store.progress
        self._sink = sink
        self._stopping = stopping
        self._types: dict[TypeKey, tuple[str, int]] = {}
        self._look_at = time.monotonic() + config.discover
        self._left_alone: set[str] = set()

    def run(self, once: bool) -> None:
        """Run until we are told to stop, or (``once``) until everything that is committed now is in the log."""
        with translate_errors():
            check_server(self._control)
            tables = self._publish_tables(begun=self._progress.is_used())
            check_tables(tables, self._config.tables)
            self._open_slot()
            until = replication_slot.end_of_wal(self._control) if once else None
            while not self._stopping.is_set():
                self._copy_missing(tables)
                if self._follow(until) and not self._missing(tables):
                    return
                tables = self._publish_tables()

    def _open_slot(self) -> None:
        """Create the slot, or check that the existing one is ours, free, and where we left it."""
        with closing(self._connect_replication()) as walsender:
            self._check_system(walsender)
            slot = self._config.slot
            if replication_slot.has_slot(self._control, slot):
                if self._config.copy_ and not (self._progress.is_used() or self._progress.makes_slot):
                    raise replication_slot.foreign_slot_error(slot)
                server_history.check_reachable(self._control, self._progress.newest_lsn())
                self._wait_for_slot()
                # One that was still being created, for a process of ours that stopped, may be gone with its holder.
                if replication_slot.has_slot(self._control, slot):
                    self._check_unmoved()
                    return
            if self._progress.is_used():
                raise replication_slot.slot_lost_error(slot, "it does not exist any more")
            replication_slot.check_free_slots(self._control)
            self._progress.makes_slot = True
            self._store.save()
            made = replication_slot.create_slot(walsender, slot, self._stopping)
            faults.reach("postgres.slot.made")
            _log.info("made the slot %s at %s", slot, lsn_text(made))
            self._progress.confirmed = made
            if not self._config.copy_:
                begin = replication_slot.take_snapshot(self._control, walsender, self._config.slot, self._stopping).lsn
                self._progress.taken = ChangePosition(begin)
                self._store.save()

    def _check_system(self, walsender: Connection) -> None:
        """Check that it is the same database cluster, on a timeline that has what the log has."""
        progress = self._progress
        system = server_history.identify_system(walsender, self._stopping)
        if progress.system not in ("", system.identifier):
            raise server_history.other_server_error("it is another database cluster")
        server_history.check_timeline(
            walsender, progress.timeline, system.timeline, progress.newest_lsn(), self._stopping
        )
        progress.system, progress.timeline = system.identifier, system.timeline

    def _check_unmoved(self) -> None:
        """Check that nobody else has read from the slot: the server does not resend what another reader confirmed."""
        slot, known = self._config.slot, self._progress.confirmed
        confirmed = replication_slot.confirmed_lsn(self._control, slot)
        if known is not None and confirmed > known:
            raise replication_slot.slot_lost_error(
                slot, f"somebody else has read it up to {lsn_text(confirmed)}, we had it to {lsn_text(known)}"
            )
        self._progress.confirmed = confirmed if known is None else known

    def _note_confirmation(self, lsn: Lsn) -> None:
        """Save how far the slot is about to be confirmed, before the server hears of it."""
        if self._progress.confirmed is None or lsn > self._progress.confirmed:
            self._progress.confirmed = lsn
            self._store.save()

    def _copy_missing(self, tables: Sequence[Table]) -> None:
        """Copy tables until none is missing; a table that changed during its copy is retried with a new snapshot."""
        waits = Waits()
        while missing := self._missing(tables):
            with closing(self._connect_replication()) as walsender:
                snapshot = replication_slot.take_snapshot(self._control, walsender, self._config.slot, self._stopping)
                moved = self._copy(snapshot, missing)
            if moved:
                waits.wait(self._stopping, f"{', '.join(moved)} changed while being copied")
            if self._stopping.is_set():
                raise Stopped
            tables = self._publish_tables()

    def _copy(self, snapshot: replication_slot.Snapshot, missing: Sequence[Table]) -> list[str]:
        """Copy these tables in the snapshot; returns the names of those that the snapshot can no longer read."""
        copies = self._plan(snapshot, missing)
        copier = Copier(self._config, snapshot, self._progress, self._sink, self._stopping)
        return [copy.layout.namespace for copy in copier.run(copies, completed=self._store.save)]

    def _plan(self, snapshot: replication_slot.Snapshot, missing: Sequence[Table]) -> list[TableCopy]:
        filters = {table.oid: table.row_filter for table in missing}
        memberships = {table.oid: table.membership for table in missing}
        with self._control.transaction():
            snapshot.enter(self._control)
            found = layouts(self._control, self._config.publication, filters)
            return [
                TableCopy(
                    found[oid],
                    [part for stretch in leaf_tables(self._control, oid) for part in ranges(stretch, filters[oid])],
                    memberships[oid],
                )
                for oid in filters
                if oid in found
            ]

    def _follow(self, until: Lsn | None) -> bool:
        """Append changes until there are tables to copy, or we are told to stop; whether ``until`` was reached."""
        with closing(self._connect_replication()) as connection:
            walsender = self._start_stream(connection)
            _log.info("following changes from %s", lsn_text(self._progress.start_lsn()))
            stream = Stream(
                walsender,
                Decoder(self._progress, self),
                self._progress,
                self._sink,
                self._note_confirmation,
                server_history.ResentTransaction(self._progress, walsender.confirmed),
            )
            try:
                return stream.follow(self._stopping, self._look_for_new_tables, until)
            except psycopg.errors.UndefinedObject as error:
                # The server decodes a change with the catalog of its time: the publication must have existed then.
                raise replication_slot.slot_lost_error(self._config.slot, str(error)) from error

    def _start_stream(self, connection: Connection) -> Walsender:
        slot = self._config.slot
        while True:
            self._wait_for_slot()
            # Only now: whoever held the slot may have confirmed more of it.
            walsender = Walsender(connection, replication_slot.confirmed_lsn(self._control, slot))
            try:
                walsender.start(slot, self._config.publication, self._progress.start_lsn(), self._stopping)
                return walsender
            except psycopg.errors.ObjectInUse:
                continue
            except (
                psycopg.errors.ObjectNotInPrerequisiteState,
                psycopg.errors.UndefinedObject,
                psycopg.errors.UndefinedFile,
            ) as error:
                raise replication_slot.slot_lost_error(slot, str(error)) from error

    def _wait_for_slot(self) -> None:
        """Wait until nobody holds the slot. A killed process of ours holds it until the server notices."""
        waits, deadline = Waits(), time.monotonic() + replication_slot.holder_timeout(self._control)
        while (holder := replication_slot.slot_holder(self._control, self._config.slot)) is not None:
            if time.monotonic() > deadline:
                raise replication_slot.slot_busy_error(self._config.slot, holder)
            waits.wait(self._stopping, f"the slot '{self._config.slot}' is in use by {holder}.")
            if self._stopping.is_set():
                raise Stopped

    def wanted_layout(self, relation: Relation) -> Layout | None:
        """The layout of a relation whose changes are wanted; None if it is not selected or not copied yet."""
        if not is_selected(relation.namespace, self._config.tables):
            return None
        if self._config.copy_ and not self._progress.has_copy(relation.namespace, relation.oid):
            self._look_at = 0.0
            return None
        return relation_layout(self._control, relation, self._types)

    def has_outgrown_copy(self, relation: Relation) -> bool:
        """Whether changes of this shape cannot be applied to the rows that were copied."""
        copied = self._progress.copied_columns(relation.namespace)
        if not (self._config.copy_ and copied and self._progress.has_copy(relation.namespace, relation.oid)):
            return False
        layout = relation_layout(self._control, relation, self._types)
        why = why_outgrown(copied, layout)
        if why is not None:
            _log.warning("%s %s: it is copied again", relation.namespace, why)
        elif self._progress.note_columns(layout):
            self._store.save()
        return why is not None

    def _look_for_new_tables(self) -> bool:
        """Whether there are tables to copy first; checked at intervals, and when the stream names a new table."""
        self._store.save_if_due()
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + self._config.discover
        followed = self._progress.followed_tables()
        return bool(self._missing(self._publish_tables())) or followed != self._progress.followed_tables()

    def _publish_tables(self, begun: bool = True) -> list[Table]:
        """Publish the selected tables; returns those to follow. ``begun``: skip what cannot be published yet."""
        publish = publish_new if begun else publish_all
        tables = publish(self._control, self._config.publication, self._config.tables, self)
        self._void_unpublished(tables)
        self._void_republished(tables)
        return tables

    def warn_not_followed(self, table: Table, why: str) -> None:
        """Warn once per table."""
        if table.namespace not in self._left_alone:
            self._left_alone.add(table.namespace)
            _log.warning("%s cannot be followed yet: %s", table.namespace, why)

    def note_missed_changes(self, fresh: Sequence[Table]) -> None:
        """Note in the log that changes of these tables were missed: they must be copied again."""
        for table in fresh:
            if self._progress.has_copy(table.namespace, table.oid):
                _log.warning("changes of %s were missed; it must be copied again", table.namespace)
                self.void_table(table.namespace)

    def _void_unpublished(self, followed: Sequence[Table]) -> None:
        """The same for tables that are no longer selected or published."""
        for namespace in self._progress.followed_tables() - {table.namespace for table in followed}:
            _log.info("%s is not followed any more", namespace)
            self.void_table(namespace)

    def _void_republished(self, followed: Sequence[Table]) -> None:
        """The same for tables that were out of the publication for a while, although it has them now."""
        for table in followed:
            if self._progress.has_copy(table.namespace, table.oid) and self._progress.note_membership(
                table.namespace, table.membership
            ):
                _log.warning(
                    "%s was taken out of the publication and put back, or is published in another way: it must be"
                    " copied again",
                    table.namespace,
                )
                self.void_table(table.namespace)

    def void_table(self, namespace: str) -> None:
        self._sink.append(void_entry(namespace, self._progress.tables[namespace]))
        self._progress.void_copy(namespace)

    def _missing(self, tables: Sequence[Table]) -> list[Table]:
        if not self._config.copy_:
            return []
        return [table for table in tables if not self._progress.has_copy(table.namespace, table.oid)]

    def _connect_replication(self) -> Connection:
        try:
            return connect(self._config, replication=True)
        except PenstockError as error:
            raise check_replication_right(self._control, error) from error
