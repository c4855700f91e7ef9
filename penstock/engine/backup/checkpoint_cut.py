"""Cuts a checkpoint that Spark is writing back to where a copy of the ledger stands.

Spark notes where a batch ends before the batch begins (``offsets``), and that it is done after the ledger knows it
(``commits``). What it keeps of a batch has the batch's number in its name and is never changed. So of a checkpoint that
has run ahead, the files up to the ledger's last batch are what it was at that moment, or what a crash there would have
left: a batch that the copied ledger has begun is run again, as it was.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.engine.spark.spark_checkpoints import batch_end, begun_batches

_STATE_VERSION = re.compile(r"(\d+)\.(?:zip|changelog|delta|snapshot)")


@dataclass(frozen=True)
class LedgerPosition:
    """Where a route stands in a copy of the ledger."""

    checkpoint: str
    """The name of the checkpoint that belongs to it."""
    committed: Mapping[int, int]
    under_way: Mapping[int, int]
    """Where the batch ends that it has begun, per partition; empty if there is none."""


@dataclass(frozen=True)
class Cut:
    """The last batch whose beginning is kept, and the last whose completion is."""

    begun: int
    completed: int


def find_cut(checkpoint: Path, position: LedgerPosition) -> Cut | None:
    """``None`` if Spark has no batch that ends there, or its state is gone: it has come too far since, or the position
    is not from a batch."""
    reached = {**position.committed, **position.under_way}
    for batch in sorted(begun_batches(checkpoint), reverse=True):
        end = batch_end(checkpoint, batch)
        if all(offset <= reached.get(partition, 0) for partition, offset in end.items()):
            completed = batch - 1 if position.under_way else batch
            fits = all(offset == reached.get(partition, 0) for partition, offset in end.items())
            found = Cut(batch, completed)
            return found if fits and _has_state(checkpoint, found) else None
    return None


def cut_files(checkpoint: Path, cut: Cut) -> Iterator[Path]:
    """The files of a checkpoint up to there, without checksums, which are beside them and not needed."""
    for path in sorted(checkpoint.rglob("*")):
        if path.is_file() and not path.name.startswith(".") and _is_kept(path.relative_to(checkpoint), cut):
            yield path


def link_files(source: Path, target: Path) -> None:
    """Give every file below a folder a second name, so that it stays when Spark removes it."""
    for path in source.rglob("*"):
        linked = target / path.relative_to(source)
        if path.is_dir():
            linked.mkdir(parents=True, exist_ok=True, mode=0o700)
        elif not path.name.startswith("."):
            linked.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with suppress(FileNotFoundError):  # removed meanwhile
                try:
                    os.link(path, linked)
                except PermissionError:
                    shutil.copyfile(path, linked)  # a file system without links


def _is_kept(path: Path, cut: Cut) -> bool:
    if path.parts[0] == "state" and (version := _STATE_VERSION.fullmatch(path.name)):
        return int(version[1]) <= cut.completed + 1
    if not path.name.isdigit():
        return True
    if path.parts[0] == "commits":
        return int(path.name) <= cut.completed
    return int(path.name) <= cut.begun


def _has_state(checkpoint: Path, cut: Cut) -> bool:
    """Whether all parts of the state are there as the last completed batch left them."""
    version = cut.completed + 1
    parts = [path for path in (checkpoint / "state").glob("*/*") if path.name.isdigit()]
    return version == 0 or all(any(path.glob(f"{version}.*")) for path in parts)
