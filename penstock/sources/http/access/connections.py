"""The open connections of a worker, and which of them to end when there are too many.

The HTTP server accepts connections and shows us a request only when its headers are complete. A connection that sends
half a header, or nothing, is therefore invisible to the application, and yet takes a place. This module looks at the
process's own sockets instead, about ten times a second. A connection is *anonymous* until one of its requests has shown
a known token. Anonymous ones have their own budget, per address and in all; over it, those that have been anonymous for
longest are ended first: an honest client is anonymous only while its first headers travel, and is never the oldest for
long. Beyond ``limits.connections``, anonymous ones whose time is over are ended first, then those that have been silent
for longest.

A connection is ended with ``shutdown`` on a copy of its descriptor: the server, which owns it, sees its end and closes
it. On systems without ``/proc`` nothing is seen and nothing is ended; the server's own limit still holds.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from penstock.sources.http.config import ServerLimits

LOOK_SECONDS = 0.1
EVERY_SO_MANY_LOOKS = 50
"""How often all connections are checked even if there are few."""
GRACE_SECONDS = 1.0
"""How long a connection may take to show a token before it counts against the limits, per address and in all."""
IDLE_SECONDS = 2.0
"""A known connection that has sent something within this time may be waiting for its answer: it stays."""
SPARE_LEAST = 256

_DESCRIPTORS = "/proc/self/fd"
_ESTABLISHED = 1
_TCP_INFO = struct.Struct("=B51xI")
"""From Linux's ``tcp_info``: the state, and the milliseconds since the last data."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One open connection, as the process's descriptors show it."""

    descriptor: int
    inode: int
    address: str
    peer: str
    """As the server names it in a request: ``address:port``, IPv6 in brackets."""
    since: float


class Connections:
    """Knows the connections of one worker. The event loop calls ``mark_known``, one thread ``end_surplus``.

    ``is_proxy`` tells addresses that many clients share by design: they have no budget per address.
    """

    def __init__(self, limits: ServerLimits, port: int, is_proxy: Callable[[str], bool]) -> None:
        self._limits = limits
        self._least = min(limits.connections, limits.anonymous_connections, limits.anonymous_per_address)
        """With fewer connections than this, none can be too many."""
        self.accepted = limits.connections + max(SPARE_LEAST, limits.connections // 4)
        """How many the server may have open: some more, so that newcomers get in while others are ended."""
        self._port = port
        self._is_proxy = is_proxy
        self._open: dict[int, Connection] = {}
        self._known: set[str] = set()
        self._just_known: set[str] = set()
        self._known_before: set[str] = set()
        self._looks = 0

    def mark_known(self, peer: str) -> None:
        """A request of this connection has shown a token."""
        self._just_known.add(peer)

    def end_surplus(self) -> int:
        """End the connections that are too many; returns how many."""
        self._looks += 1
        if self._looks % EVERY_SO_MANY_LOOKS and 0 < _descriptors() <= self._least:
            return 0
        # Swapped before the descriptors are read: those in it that are still connected are seen below. One that the
        # event loop is adding at this moment is found by the next call.
        before, self._known_before, self._just_known = self._known_before, self._just_known, set()
        self._open = {connection.descriptor: connection for connection in self._list_connections()}
        peers = {connection.peer for connection in self._open.values()}
        self._known = (self._known | before | self._known_before) & peers
        return sum(_end_connection(connection) for connection in self._surplus())

    def is_whole(self, peer: str) -> bool:
        """Whether the client has neither closed nor broken this connection."""
        for connection in self._list_connections():
            if connection.peer == peer:
                copy = _copy(connection)
                if copy is not None:
                    with copy:
                        return _info(copy)[0] == _ESTABLISHED
        return False

    def _list_connections(self) -> Iterator[Connection]:
        """All connections to our port. Descriptors seen last time are not queried again."""
        now = monotonic()
        try:
            descriptors = [int(name) for name in os.listdir(_DESCRIPTORS)]
        except OSError:
            return
        for descriptor in descriptors:
            try:
                status = os.fstat(descriptor)
            except OSError:
                continue  # closed meanwhile
            if not stat.S_ISSOCK(status.st_mode):
                continue
            seen = self._open.get(descriptor)
            if seen is None or seen.inode != status.st_ino:
                seen = _connection(descriptor, status.st_ino, self._port, now)
            if seen is not None:
                yield seen

    def _surplus(self) -> Iterable[Connection]:
        limits = self._limits
        known = self._known | self._just_known
        anonymous = sorted((c for c in self._open.values() if c.peer not in known), key=lambda c: c.since)
        left = Counter(connection.address for connection in anonymous)
        newest = monotonic() - GRACE_SECONDS
        over_budget, surplus = len(anonymous) - limits.anonymous_connections, len(self._open) - limits.connections
        ended: list[Connection] = []
        for connection in anonymous:  # the one that came first goes first
            address = connection.address
            crowded = left[address] > limits.anonymous_per_address and not self._is_proxy(address)
            late = connection.since < newest and (crowded or surplus > 0)
            if over_budget > 0 or late or self._is_stuck(connection):
                left[address] -= 1
                over_budget -= 1
                surplus -= 1
                ended.append(connection)
        if surplus > 0:
            idle = [(_idle(c), c) for c in self._open.values() if c.peer in known]
            idle.sort(key=lambda found: -found[0])
            ended += [connection for seconds, connection in idle[:surplus] if seconds >= IDLE_SECONDS]
        return ended

    def _is_stuck(self, connection: Connection) -> bool:
        """Whether it is silent for longer than the server's limit for headers: a stuck TLS handshake."""
        longest = self._limits.header_timeout + IDLE_SECONDS
        return monotonic() - connection.since > longest and _idle(connection) > longest


def _descriptors() -> int:
    """How many descriptors are open; 0 if the system does not say so cheaply."""
    try:
        return os.stat(_DESCRIPTORS).st_size
    except OSError:
        return 0


def _connection(descriptor: int, inode: int, port: int, now: float) -> Connection | None:
    """The connection of a descriptor, if it is one to our port."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as copy:
        if copy.family not in (socket.AF_INET, socket.AF_INET6) or copy.getsockname()[1] != port:
            return None
        host, other = copy.getpeername()[:2]
        peer = f"[{host}]:{other}" if copy.family == socket.AF_INET6 else f"{host}:{other}"
        return Connection(descriptor, inode, host, peer, now)
    return None


def _copy(connection: Connection) -> socket.socket | None:
    """The connection's socket under a descriptor of our own; None if it is gone and its number was reused."""
    with suppress(OSError):
        copy = socket.socket(fileno=os.dup(connection.descriptor))
        if os.fstat(copy.fileno()).st_ino == connection.inode:
            return copy
        copy.close()
    return None


def _end_connection(connection: Connection) -> bool:
    copy = _copy(connection)
    if copy is None:
        return False
    with copy, suppress(OSError):
        copy.shutdown(socket.SHUT_RDWR)
    return True


def _idle(connection: Connection) -> float:
    """For how many seconds no data has arrived."""
    copy = _copy(connection)
    if copy is None:
        return 0.0
    with copy:
        return _info(copy)[1] / 1000


def _info(copy: socket.socket) -> tuple[int, int]:
    state, silent = _TCP_INFO.unpack(copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size))
    return state, silent
