"""Putting a backup back, and letting every route go on from there.

The data is put together beside ``data_dir`` and takes its place by one rename, so a restore that is killed has done
nothing or all. What was there before is kept beside it. Then each destination is asked what it has: where it is newer
than the backup, its routes adopt that; where it is older, it is said what is missing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock import faults
from penstock.config.pipeline import PipelineConfig
from penstock.durable import sync_directory
from penstock.engine.backup.making import Told
from penstock.engine.backup.manifest import Manifest, copy_file, read_manifest, sync_folders
from penstock.engine.layout import Layout
from penstock.engine.ledger import Operator
from penstock.engine.pipeline import Pipeline
from penstock.engine.presence import engine_pid
from penstock.engine.takeover import adopt
from penstock.errors import ContradictionError, PenstockError, TransientError
from penstock.log.files import try_lock

_EXCHANGE = 2
_AT_FDCWD = -100


@dataclass(frozen=True)
class Resumed:
    """How a route goes on after a restore."""

    route: str
    adopted: int = 0
    """Offsets that the destination has beyond the backup's ledger; they are not delivered again."""
    missing: str = ""
    """What the destination lacks that the ledger counts as delivered, and how to deliver it again."""
    unknown: str = ""
    """Why the destination could not be asked; the route asks it when it starts."""


@dataclass(frozen=True)
class Restored:
    manifest: Manifest
    before: Path | None
    """Where the data that was there before is kept."""
    routes: Sequence[Resumed]


def restore(
    config: PipelineConfig, source: Path, operator: Operator, force: bool, told: Told = lambda done, total: None
) -> Restored:
    """Put a backup in the place of ``data_dir``, which must be new or empty unless ``force`` is given."""
    manifest = read_manifest(source)
    target = config.data_dir.absolute()
    if manifest.pipeline != config.name:
        raise PenstockError(
            "PEN-BAK-010",
            f"{source} is a backup of the pipeline '{manifest.pipeline}', and this one is '{config.name}'.",
            "Name the config that belongs to it with -c.",
        )
    filled = target.exists() and any(target.iterdir())
    if filled and not force:
        raise PenstockError(
            "PEN-BAK-011",
            f"{target} is not empty.",
            "Restore into a new `data_dir`, or take its place with --force: what is there now is kept beside it.",
        )
    if filled:
        _require_rest(target)
    partial = target.with_name(f"{target.name}.restoring")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _copy(manifest, source, partial, told)
        before = _put_in_place(partial, target, filled)
    except OSError as error:
        if isinstance(error, faults.InjectedFault):
            raise
        raise PenstockError(
            "PEN-BAK-012",
            f"{source} was not restored to {target}: {error}.",
            "Make room or mend the permissions, then start it again; `data_dir` is as it was.",
        ) from error
    return Restored(manifest, before, resume_routes(config, operator))


def resume_routes(config: PipelineConfig, operator: Operator) -> list[Resumed]:
    """Bring every route in line with what its destination has."""
    pipeline = Pipeline.open(config)
    try:
        return [_resume(pipeline, route, operator) for route in config.routes]
    finally:
        pipeline.ledger.close()


def _resume(pipeline: Pipeline, route: str, operator: Operator) -> Resumed:
    history, sources = pipeline.history(), pipeline.sources_of(route)
    destination = pipeline.plan(route).destination()
    try:
        try:
            history.check_ground(route, sources)
            history.check_target(route, sources, destination)
        except ContradictionError:
            done = adopt(pipeline, route, route, operator)
            return Resumed(route, adopted=sum(max(0, end - start) for start, end in done.stretches.values()))
        return Resumed(route, missing=history.missing(route, destination))
    except TransientError as error:
        return Resumed(route, unknown=str(error))


def _copy(manifest: Manifest, source: Path, partial: Path, told: Told) -> None:
    """Every file, compared with what the manifest says of it while it is copied."""
    partial.mkdir(parents=True, mode=0o700)
    done, total = 0, manifest.bytes
    for name, entry in manifest.files.items():
        try:
            found = copy_file(source / name, partial / name)
        except FileNotFoundError:
            found = None
        if found != entry:
            shutil.rmtree(partial, ignore_errors=True)
            what = "is missing" if found is None else "is not what it was when the backup was made"
            raise PenstockError("PEN-BAK-013", f"{source / name} {what}.", "Nothing was restored. Take another backup.")
        done += entry.bytes
        told(done, total)
        faults.reach("restore.file_copied")
    sync_folders(partial)


def _put_in_place(partial: Path, target: Path, filled: bool) -> Path | None:
    faults.reach("restore.before_rename")
    if not filled:
        partial.replace(target)
        sync_directory(target.parent)
        return None
    _exchange(partial, target)
    faults.reach("restore.exchanged")
    before = target.with_name(f"{target.name}.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    partial.rename(before)
    sync_directory(target.parent)
    return before


def _exchange(one: Path, other: Path) -> None:
    """Let two folders change places at one moment. Where the system has no such call, two renames must do."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is not None:
        if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
            return
        code = ctypes.get_errno()
        if code not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(code, os.strerror(code), str(other))
    aside = other.with_name(f"{other.name}.aside")
    other.rename(aside)
    one.rename(other)
    aside.rename(one)


def _require_rest(target: Path) -> None:
    layout = Layout(target)
    pid = engine_pid(layout)
    if pid is not None:
        raise PenstockError("PEN-BAK-014", f"the pipeline runs (pid {pid}) on {target}.", "Stop it first.")
    for directory in layout.log.glob("[0-9]*"):
        lock = try_lock(directory / "lock")
        if lock is None:
            raise PenstockError("PEN-BAK-014", f"a source writes to {directory}.", "Stop the pipeline first.")
        os.close(lock)
