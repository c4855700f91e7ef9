"""What all steps of a process share: databases are opened, and answers cached, once.

A step asks for it when it is built, which is at the start of every task. A database file that changed since then is
opened anew; one that is missing or damaged is said in the log, once, and then knows nothing.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import maxminddb

from penstock.steps.lookup.address_facts import Address, AddressFacts
from penstock.steps.lookup.answer_memory import AnswerCache
from penstock.steps.lookup.user_agents import AgentFacts

_log = logging.getLogger("penstock.lookup")


@cache
def agents() -> AnswerCache:
    """User agents."""
    return AnswerCache(AgentFacts())


def addresses(paths: tuple[Path, ...]) -> AnswerCache:
    """IP addresses, by the databases at ``paths`` as they are now."""
    stamps = tuple(map(_stamp, paths))
    with _lock:
        known = _known.get(paths)
        if known is None or known.stamps != stamps:
            if not paths:
                _log.warning("ip_lookup knows nothing: the step has no `databases`")
            opened = [database for path in paths if (database := _open_database(path)) is not None]
            known = _known[paths] = _Known(stamps, AnswerCache(AddressFacts(opened)))
        return known.memory


@dataclass
class MaxMindFile:
    """An open database file. An address that it cannot look up is one that it does not know."""

    path: Path
    reader: maxminddb.Reader = field(repr=False)
    _damaged: bool = False

    def get(self, address: Address) -> object:
        try:
            return self.reader.get(address)
        except ValueError:  # an IPv6 address, and the database knows only IPv4
            return None
        except Exception as error:
            # A damaged file can break the reader in many ways, and no event may fail because of it.
            if not self._damaged:
                self._damaged = True
                _log.warning("%s is damaged; what it holds is missing in the lookups: %s", self.path, error)
            return None


_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class _Known:
    stamps: tuple[_Stamp | None, ...]
    memory: AnswerCache


_known: dict[tuple[Path, ...], _Known] = {}
_lock = threading.Lock()


def _stamp(path: Path) -> _Stamp | None:
    """A stamp that changes when the file does; ``None`` if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _open_database(path: Path) -> MaxMindFile | None:
    try:
        return MaxMindFile(path, maxminddb.open_database(path))
    except FileNotFoundError:
        problem = "there is no such file"
    except OSError as error:
        problem = f"it cannot be read: {error.strerror or error}"
    except (maxminddb.InvalidDatabaseError, ValueError):
        problem = "it is not a MaxMind database"
    _log.warning("ip_lookup goes on without %s: %s", path, problem)
    return None
