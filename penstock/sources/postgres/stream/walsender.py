"""The replication stream over the driver's connection: reads messages, sends confirmations."""

from __future__ import annotations

import select
import struct
import time
from threading import Event

import psycopg
from psycopg import pq

from penstock.sources.postgres.connection import Connection, translated_error
from penstock.sources.postgres.copy.copy_blocks import wait_for_result
from penstock.sources.postgres.stream_position import Lsn, lsn_text

STATUS_SECONDS = 1.0
"""The interval of status messages to the server; more often only when it asks."""
GOODBYE_SECONDS = 2.0
LARGE_BYTES = 4 * 2**20

Message = bytes | memoryview

_CHANGE = 0x77
_KEEPALIVE = struct.Struct(">cqq?")
_STATUS = struct.Struct(">cqqqqB")
_POSTGRES_EPOCH = 946_684_800


class Walsender:
    """A slot's stream. Every call may raise the driver's errors."""

    def __init__(self, connection: Connection, confirmed: Lsn) -> None:
        """``confirmed``: how far the slot is. Until it gets there, the server also reports earlier positions."""
        self._pgconn = connection.pgconn
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)
        self._sent_at = 0.0
        self._asked = False
        self._held: Message | None = None
        self.confirmed = confirmed
        self.idle_at: Lsn = 0
        """The server had nothing more for us up to here, and we had read everything that it sent."""

    def start(self, slot: str, publication: str, start: Lsn, stopping: Event) -> None:
        names = publication.replace('"', '""').replace("'", "''")
        self._pgconn.send_query(
            f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(start)}'
            f" (proto_version '1', publication_names '\"{names}\"')".encode()
        )
        result = wait_for_result(self._pgconn, stopping)
        assert result is not None
        if result.status != pq.ExecStatus.COPY_BOTH:
            while wait_for_result(self._pgconn, stopping) is not None:
                pass  # only then can the connection be used again
            raise psycopg.errors.error_from_result(result)

    def wait(self, seconds: float) -> None:
        """Wait until something arrives, or for ``seconds``."""
        if self._poll.poll(seconds * 1000):
            self._pgconn.consume_input()

    def read(self, into: list[Message], most: int, inside: bool) -> int:
        """Add the messages that have arrived to ``into``, until they are at least ``most`` bytes; returns their bytes.

        A message that is larger than ``LARGE_BYTES`` is added only to an empty list, and ends it. ``inside``: the last
        message before ``into`` was inside a transaction.
        """
        get = self._pgconn.get_copy_data
        size = 0
        if self._held is not None:
            into.append(self._held)
            size, self._held = len(self._held), None
        while size < most:
            length, message = get(1)
            if length <= 0:
                if length < 0:
                    self._raise_stream_end()
                break
            if message[0] == _CHANGE:
                if length > LARGE_BYTES and into:
                    self._held = message
                    return most
                into.append(message)
                size += length
            else:
                self._handle_keepalive(bytes(message), nothing_waits=not into and not inside)
        return size

    def is_due(self) -> bool:
        return self._asked or time.monotonic() - self._sent_at >= STATUS_SECONDS

    def confirm(self, lsn: Lsn, ask: bool = False) -> None:
        """Tell the server that everything before ``lsn`` is durable here. ``ask``: request an answer at once."""
        self.confirmed = max(self.confirmed, lsn)
        now = int((time.time() - _POSTGRES_EPOCH) * 1e6)
        place = self.confirmed
        self._pgconn.put_copy_data(_STATUS.pack(b"r", place, place, place, now, ask))
        self._pgconn.flush()
        self._sent_at = time.monotonic()
        self._asked = False

    def finish(self) -> None:
        """End the stream cleanly, so that the slot is free and the server keeps what was confirmed."""
        self._pgconn.put_copy_end()
        self._pgconn.flush()
        deadline = time.monotonic() + GOODBYE_SECONDS
        while time.monotonic() < deadline:
            length, _ = self._pgconn.get_copy_data(1)
            if length < 0:
                return
            if length == 0:
                self.wait(0.1)

    def _handle_keepalive(self, message: bytes, nothing_waits: bool) -> None:
        _, end, _, wants_answer = _KEEPALIVE.unpack(message)
        self._asked = self._asked or wants_answer
        if nothing_waits:
            self.idle_at = end

    def _raise_stream_end(self) -> None:
        result = self._pgconn.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
        raise translated_error(psycopg.OperationalError("the server ended the stream"))
