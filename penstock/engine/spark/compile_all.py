"""Compiles what sources, mirrors and the log's upkeep use beside the steps: each is given a few bytes to work on.

No Python process of Spark needs any of it. It is compiled once, at setup, instead of by the first process of a source
that reads a row, while the others wait or compile it too.
"""

from __future__ import annotations

import gc
from multiprocessing import Process

import numpy as np

from penstock.destinations.sql.mirror.fold_changes import Change, fold
from penstock.engine.spark.warm_up import warm_up_components, warm_up_documents
from penstock.holding.key_table import KeyTable
from penstock.json.merge import merge_objects
from penstock.log.exchange.decode import decode, find_entries
from penstock.log.exchange.encode import encode
from penstock.log.maintenance.compaction_keys import KeyHash
from penstock.log.maintenance.supersession import superseded_flags
from penstock.record import Record, entries, placed
from penstock.registry import Kind, components

_OBJECTS_BETWEEN_LOOKS = 200_000
"""How many new objects Python waits for before it looks for garbage. The compiler makes very many that live on: with
Python's 700 a seventh of the time goes into looking at them again and again."""


def compile_all() -> None:
    """Everything that any pipeline of ours can reach. Takes a minute; three processes share it, each with what the
    others hardly need."""
    others = [Process(target=work) for work in (warm_up_components, warm_up_documents)]
    for other in others:
        other.start()
    for source in components(Kind.SOURCE).values():
        source.warm_up()
    for destination in components(Kind.DESTINATION).values():
        destination.warm_up()
    _maintain_log()
    _find_keys()
    kinds = np.array([Change.INSERT, Change.UPDATE, Change.DELETE], np.int8)
    fold(kinds, np.array([0, 1, 0]), np.array([-1, 0, -1]), 2)
    merge_objects(b'{"a":{"b":1}}', b'{"a":{"c":"\\u00e9"}}')
    for other in others:
        other.join()
        if other.exitcode:
            raise SystemExit(other.exitcode)


def _maintain_log() -> None:
    batch = placed(entries([Record(b"{}", namespace="web", key="k"), Record(b"{}", namespace="web")]), 0, 0)
    content = np.frombuffer(encode(batch), np.uint8)
    decode(content, find_entries(content, 0, -1, 2, 1000).positions)
    high, low = np.zeros((2, 2), np.uint64)
    KeyHash().hash(batch, high, low)
    superseded_flags(high, low, high)


def _find_keys() -> None:
    """As in a state that is read again: its bytes cannot be written to, and are more than a new table has room for."""
    halves = np.frombuffer(np.arange(2000, dtype=np.uint64).tobytes(), np.uint64).reshape(2, 1000)
    KeyTable.of(*halves).find(*halves)


if __name__ == "__main__":
    gc.set_threshold(_OBJECTS_BETWEEN_LOOKS, 50, 1000)
    gc.freeze()
    compile_all()
