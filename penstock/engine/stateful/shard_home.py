"""A process for each shard, which remembers it whichever of Spark's workers is given it.

Spark gives a shard to any worker that is free. If each remembered what it had, every worker would have the state of
every shard, and spend a good part of its time on catching up with the others. So the first worker that is given a shard
forks a home for it, and all of them ask there. A home ends with the worker that forked it; the next one builds the
state again from the store. Homes are found by sockets in a folder that is closed to other users.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import socket
import struct
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from setproctitle import setproctitle

from penstock import parent_death
from penstock.engine.processes.forked_process import end_with, release_files
from penstock.engine.route_plan import RoutePlan
from penstock.engine.stateful.shard_memory import Answer, Extent, Request, ShardMemory

MOST_HOMES = 64
"""How many homes a worker keeps of those that it has made: the oldest one goes."""

_HEAD = struct.Struct("<Q")
_LOOK_EVERY = 60.0
"""Seconds after which a home that nobody asks looks whether it can be found still."""
_WAITING = 8

_memories: dict[tuple[str, int], ShardMemory] = {}
"""What this process itself remembers, by route and shard."""
_homes: list[int] = []
"""The homes that this process has made."""
_folder: Path | None = None


def keep_homes_in(folder: str | None) -> None:
    """Let all processes that are forked from this one keep their homes in a folder; without one, and as long as this
    was not called, each remembers for itself."""
    global _folder
    _folder = Path(folder) if folder else None


def memory_of(plan: RoutePlan, shard: int) -> AbstractContextManager[ShardMemory | ShardHome]:
    """Whoever remembers a shard. One task at a time has it: others wait."""
    if _folder is not None:
        return _reach_home(_folder, plan, shard)
    return nullcontext(_memories.setdefault((plan.name, shard), ShardMemory(plan, shard)))


class ShardHome:
    """A worker's connection to the home of a shard."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        greeting, _ = _receive(connection)
        extent = greeting["extent"]
        self.extent = None if extent is None else Extent(extent[0], extent[1], bytes.fromhex(extent[2]))

    def answer(self, request: Request) -> Answer:
        stored = request.stored
        about = {
            "stored": [stored.first, stored.following, stored.token.hex()],
            "anew": request.anew,
            "blobs": len(request.blobs),
        }
        _send(self._connection, about, [*request.blobs, *request.items])
        found, parts = _receive(self._connection)
        if "error" in found:
            raise RuntimeError(f"the process that remembers this shard says:\n{found['error']}")
        released = list(zip(found["tasks"], parts, strict=False))
        blobs = parts[len(released) :]
        append = [(blob, bytes.fromhex(token)) for blob, token in zip(blobs, found["tokens"], strict=True)]
        return Answer(found["report"], released, found["drop"], append)


@contextmanager
def _reach_home(folder: Path, plan: RoutePlan, shard: int) -> Iterator[ShardHome]:
    """The home of a shard, which is made if there is none."""
    # All that a state depends on, but for what is stored of it.
    about = repr((plan.name, plan.stage_dir, plan.state_name, plan.holding, plan.key_secret, shard))
    name = hashlib.sha256(about.encode()).hexdigest()[:16]
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # By way of the directory, because the path of a socket must be short.
        path = f"/proc/self/fd/{directory}/{name}"
        connection = _connect(path)
        if connection is None:
            _make_home(path, folder / name, plan, shard)
            connection = _connect(path)
        if connection is None:
            raise ConnectionError(f"no process remembers shard {shard} of route '{plan.name}', though one was made")
        with connection:
            yield ShardHome(connection)
    finally:
        os.close(directory)


def _connect(path: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    return connection


def _make_home(short_path: str, path: Path, plan: RoutePlan, shard: int) -> None:
    listening = socket.socket(socket.AF_UNIX)
    new = f"{short_path}.{os.getpid()}"
    listening.bind(new)
    listening.listen(_WAITING)
    # In place of one whose process is gone. Of two that are made at once, one stays and the other ends by itself.
    os.replace(new, short_path)
    worker, home = os.getpid(), os.fork()
    if home == 0:
        end_with(lambda: _be_home(listening, path, worker, plan, shard))
    listening.close()
    _homes[:] = [pid for pid in _homes if os.waitpid(pid, os.WNOHANG) == (0, 0)]
    _homes.append(home)
    if len(_homes) > MOST_HOMES:
        oldest = _homes.pop(0)
        os.kill(oldest, signal.SIGKILL)
        os.waitpid(oldest, 0)


def _be_home(listening: socket.socket, path: Path, worker: int, plan: RoutePlan, shard: int) -> int:
    parent_death.request_death_signal(signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        # They are the worker's own, by which it talks to Spark.
        os.dup2(nothing, standard)
    release_files({listening.fileno()})
    setproctitle(f"penstock: shard {shard} of {plan.name}, for pyspark")
    own = path.stat().st_ino
    memory = ShardMemory(plan, shard)
    while os.getppid() == worker:
        if select.select([listening], [], [], _LOOK_EVERY)[0]:
            connection, _ = listening.accept()
            with connection, suppress(OSError, EOFError):
                _serve(connection, memory)
        elif not path.exists() or path.stat().st_ino != own:
            break
    return 0


def _serve(connection: socket.socket, memory: ShardMemory) -> None:
    """Answer one request. Raises ``OSError`` or ``EOFError`` if the worker that asked is gone."""
    extent = memory.extent
    _send(connection, {"extent": None if extent is None else [extent.first, extent.following, extent.token.hex()]})
    about, parts = _receive(connection)
    first, following, token = about["stored"]
    stored, blobs = Extent(first, following, bytes.fromhex(token)), about["blobs"]
    try:
        answer = memory.answer(Request(stored, about["anew"], parts[:blobs], parts[blobs:]))
    except Exception:
        _send(connection, {"error": traceback.format_exc()})
        return
    found = {
        "report": answer.report,
        "tasks": [task for task, _ in answer.released],
        "drop": answer.drop,
        "tokens": [token.hex() for _, token in answer.append],
    }
    _send(connection, found, [*(items for _, items in answer.released), *(blob for blob, _ in answer.append)])


def _send(connection: socket.socket, about: Mapping[str, Any], parts: Sequence[bytes] = ()) -> None:
    head = json.dumps([about, [len(part) for part in parts]]).encode()
    connection.sendall(_HEAD.pack(len(head)) + head)
    # Whoever has got everything may answer and hang up: nothing must be sent then, not even no bytes.
    for part in filter(len, parts):
        connection.sendall(part)


def _receive(connection: socket.socket) -> tuple[Any, list[bytes]]:
    (size,) = _HEAD.unpack(_read(connection, _HEAD.size))
    about, sizes = json.loads(_read(connection, size))
    return about, [_read(connection, each) for each in sizes]


def _read(connection: socket.socket, size: int) -> bytes:
    found = bytearray(size)
    rest = memoryview(found)
    while len(rest):
        count = connection.recv_into(rest)
        if count == 0:
            raise EOFError("the other process is gone")
        rest = rest[count:]
    return bytes(found)
