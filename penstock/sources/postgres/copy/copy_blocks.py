"""The output of COPY in blocks of whole rows: read through the driver or, for large ranges, past it.

The driver returns COPY row by row, which costs more than everything else that is done to a row. So a large range is
read past it: the driver opens the connection and sends the statement, and compiled code here parses the messages that
come back. The connection cannot be used afterwards. This needs a connection that is not encrypted (to this machine, or
inside a private network); encrypted ones go through the driver.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from threading import Event, Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import pq

from penstock.compiled import Bytes, compiled
from penstock.sources.postgres.connection import TRIED_AGAIN, Connection, ServerUnavailable
from penstock.sources.postgres.rows.scratch import Scratch
from penstock.sources.postgres.rows.value_json import copy_bytes

BLOCK_BYTES = 2 * 2**20
POLL_SECONDS = 0.2

_HEADER_BYTES = 5
_DATA, _ERROR, _READY = b"dEZ"
_PASSED_OVER = frozenset(b"HNSAcC")
"""Start of COPY, notice, parameter, notification, end of COPY, end of the command."""
_MORE, _FULL, _LARGE, _OTHER = range(4)

_DRIVER = Lock()
"""Threads that read from the driver at the same time would spend most of their time on passing the GIL around."""


class Block(NamedTuple):
    """Whole rows of COPY text: ``text[:size]``. Valid until the next block is read."""

    text: npt.NDArray[np.uint8]
    size: int
    rows: int


class Stopped(Exception):
    """We were told to stop in the middle."""


def read_blocks(
    connection: Connection, statement: bytes, scratch: Scratch, stopping: Event, large: bool
) -> Iterator[Block]:
    """The output of ``COPY .. TO STDOUT``; a row that is larger than a block is a block of its own.

    ``large``: worth a connection of its own, which cannot be used afterwards. Raises the driver's errors and
    ``Stopped``.
    """
    encrypted = connection.pgconn.ssl_in_use or connection.pgconn.used_gssapi
    if large and not encrypted:
        return _read_past_driver(connection.pgconn, statement, scratch, stopping)
    return _read_by_driver(connection.pgconn, statement, stopping)


def wait_for_result(pgconn: pq.abc.PGconn, stopping: Event) -> pq.abc.PGresult | None:
    """Wait for the next result of what was sent. Raises ``Stopped`` if we are told to stop."""
    while pgconn.flush():
        wait_for_socket(pgconn.socket, select.POLLOUT, stopping)
    while pgconn.is_busy():
        wait_for_socket(pgconn.socket, select.POLLIN, stopping)
        pgconn.consume_input()
    return pgconn.get_result()


def wait_for_socket(fd: int, event: int, stopping: Event) -> None:
    poll = select.poll()
    poll.register(fd, event)
    while not poll.poll(POLL_SECONDS * 1000):
        if stopping.is_set():
            raise Stopped


def _read_by_driver(pgconn: pq.abc.PGconn, statement: bytes, stopping: Event) -> Iterator[Block]:
    pgconn.send_query(statement)
    _check_result(wait_for_result(pgconn, stopping), pq.ExecStatus.COPY_OUT)
    rows: list[bytes | memoryview] = []
    size = 0
    ended = False
    while not ended:
        with _DRIVER:
            length = 1
            while length > 0 and size < BLOCK_BYTES:
                length, row = pgconn.get_copy_data(1)
                if length > 0:
                    rows.append(row)
                    size += length
        ended = length < 0
        if length == 0:
            wait_for_socket(pgconn.socket, select.POLLIN, stopping)
            pgconn.consume_input()
        elif len(rows) > 1 and len(rows[-1]) > BLOCK_BYTES:
            last = rows.pop()
            yield _joined(rows)
            yield _joined([last])
            rows, size = [], 0
        elif rows:
            yield _joined(rows)
            rows, size = [], 0
    while (result := wait_for_result(pgconn, stopping)) is not None:
        _check_result(result, pq.ExecStatus.COMMAND_OK)


def _check_result(result: pq.abc.PGresult | None, status: pq.ExecStatus) -> None:
    if result is None:
        raise _protocol_error("no answer")
    if result.status != status:
        raise psycopg.errors.error_from_result(result)


def _joined(rows: list[bytes | memoryview]) -> Block:
    text = np.frombuffer(bytearray().join(rows), np.uint8)
    return Block(text, len(text), len(rows))


def _read_past_driver(pgconn: pq.abc.PGconn, statement: bytes, scratch: Scratch, stopping: Event) -> Iterator[Block]:
    pgconn.send_query(statement)
    while pgconn.flush():
        wait_for_socket(pgconn.socket, select.POLLOUT, stopping)
    messages = _Messages(pgconn.socket, scratch.bytes("messages", 2 * BLOCK_BYTES), stopping)
    text = scratch.bytes("text", BLOCK_BYTES)
    size = rows = 0
    while True:
        messages.at, size, rows, why = gather_rows(
            messages.buffer, messages.at, messages.end, BLOCK_BYTES, text, size, rows
        )
        if why == _MORE:
            messages.read()
        elif why == _FULL:
            yield Block(text, size, rows)
            size = rows = 0
        elif why == _LARGE:
            text = scratch.bytes("text", messages.length)
        else:
            kind, content = messages.take()
            if kind == _ERROR:
                raise _server_error(content)
            if kind == _READY:
                break
            if kind not in _PASSED_OVER:
                raise _protocol_error(f"a message of an unknown kind ({kind})")
    if rows:
        yield Block(text, size, rows)


class _Messages:
    """The server's messages as they arrive: ``buffer[at:end]`` was read and is not used yet."""

    def __init__(self, fd: int, buffer: npt.NDArray[np.uint8], stopping: Event) -> None:
        self.buffer = buffer
        self.at = self.end = 0
        self._fd = fd
        self._stopping = stopping

    @property
    def length(self) -> int:
        """The length of the current message, without its header."""
        return int.from_bytes(self.buffer[self.at + 1 : self.at + _HEADER_BYTES].tobytes(), "big") - 4

    def read(self) -> None:
        """Read more, into a buffer that has room for all of the current message."""
        held = self.end - self.at
        wanted = _HEADER_BYTES + self.length if held >= _HEADER_BYTES else _HEADER_BYTES
        place = self.buffer if wanted <= len(self.buffer) else np.empty(wanted, np.uint8)
        place[:held] = self.buffer[self.at : self.end]
        self.buffer, self.at, self.end = place, 0, held
        while True:
            try:
                count = os.readv(self._fd, [place[held:].data])
            except BlockingIOError:
                wait_for_socket(self._fd, select.POLLIN, self._stopping)
                continue
            except OSError as error:
                raise _broken(f"the connection broke during a COPY: {error.strerror}.") from error
            if count == 0:
                raise _broken("the server closed the connection during a COPY.")
            self.end += count
            return

    def take(self) -> tuple[int, bytes]:
        """Take the current message, which is complete."""
        kind, length = int(self.buffer[self.at]), self.length
        content = self.buffer[self.at + _HEADER_BYTES : self.at + _HEADER_BYTES + length].tobytes()
        self.at += _HEADER_BYTES + length
        return kind, content


@compiled
def gather_rows(
    buffer: Bytes, at: int, end: int, most: int, text: npt.NDArray[np.uint8], size: int, rows: int
) -> tuple[int, int, int, int]:
    """Append the rows of complete messages to ``text``, up to ``most`` bytes: where and why it stopped, what it has."""
    while at + 5 <= end:
        high, low = int(buffer[at + 1]) << 8 | int(buffer[at + 2]), int(buffer[at + 3]) << 8 | int(buffer[at + 4])
        following = at + 1 + (high << 16 | low)
        if following > end:
            break
        if buffer[at] != _DATA:
            return at, size, rows, _OTHER
        row_bytes = following - at - 5
        if rows and size + row_bytes > most:
            return at, size, rows, _FULL
        if row_bytes > len(text):
            return at, size, rows, _LARGE
        size = copy_bytes(buffer, at + 5, following, text, size)
        rows += 1
        at = following
    return at, size, rows, _MORE


def _server_error(content: bytes) -> psycopg.Error:
    """The driver's error for the fields of an error message, each a letter and a text."""
    fields = {part[:1]: part[1:].decode(errors="replace") for part in content.split(b"\0") if part}
    kind = psycopg.errors.lookup(fields[b"C"]) if b"C" in fields else psycopg.OperationalError
    return kind(fields.get(b"M", "an error without a text"))


def _broken(what: str) -> ServerUnavailable:
    return ServerUnavailable("PEN-PGS-015", what, TRIED_AGAIN)


def _protocol_error(what: str) -> ServerUnavailable:
    return _broken(f"PostgreSQL's answer to COPY makes no sense: {what}.")
