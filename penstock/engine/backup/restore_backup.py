"""Restores a backup, and lets every route continue from there.

The data is assembled beside ``data_dir`` and takes its place by one rename, so a killed restore has done everything or
nothing. The former data is kept beside it, also when the kill came before it got its name: only a folder with our mark
in it may be deleted. Then each destination is asked what it has: where it is newer than the backup, its routes adopt
that; where it is older, the result says what is missing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock import faults
from penstock.config.pipeline_config import PipelineConfig
from penstock.durable import sync_directory
from penstock.engine.backup.claimed_folder import claim_folder
from penstock.engine.backup.create_backup import ProgressCallback
from penstock.engine.backup.manifest import Manifest, copy_file, read_manifest, sync_folders
from penstock.engine.history.takeover import adopt
from penstock.engine.layout import Layout
from penstock.engine.ledger import Operator
from penstock.engine.pipeline import Pipeline
from penstock.engine.processes.presence import engine_pid
from penstock.errors import ContradictionError, PenstockError
from penstock.log.format.log_files import try_lock
from penstock.log.local_log import LocalLog

MARK = ".restoring"
"""A file in the folder that a restore assembles. Former data has none."""
_EXCHANGE = 2
_AT_FDCWD = -100


@dataclass(frozen=True)
class ResumedRoute:
    """How a route continues after a restore."""

    route: str
    adopted: int = 0
    """Offsets that the destination has beyond the backup's ledger; they are not delivered again."""
    missing: str = ""
    """What the ledger counts as delivered and the destination lacks, and how to deliver it again."""
    replayed: str = ""
    """Says that failed records may be at the destination already, if so."""
    unknown: str = ""
    """Why this could not be determined; the route checks when it starts, and waits if it must."""


@dataclass(frozen=True)
class Restored:
    manifest: Manifest
    before: Path | None
    """Where the former data is kept."""
    left: Path | None
    """Where the data is kept that an earlier restore replaced; it was killed before it could report that."""
    routes: Sequence[ResumedRoute]


def restore(
    config: PipelineConfig,
    source: Path,
    operator: Operator,
    force: bool,
    report_progress: ProgressCallback = lambda done, total: None,
) -> Restored:
    """Put a backup in the place of ``data_dir``, which must be new or empty unless ``force`` is given."""
    manifest = read_manifest(source)
    # The real path: a link to another disk stays a link.
    target = config.data_dir.resolve()
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
    if os.path.ismount(target):
        raise PenstockError(
            "PEN-BAK-015",
            f"{target} is a disk of its own (a mount point, a volume), and no folder can take its place.",
            "Set `data_dir` to a folder on it, and restore into that.",
        )
    partial = target.with_name(f"{target.name}.restoring")
    try:
        with _require_idle(target):
            # Better refused before the copy than after it.
            left = _clear(partial, target)
        partial.mkdir(parents=True, mode=0o700)
        with claim_folder(partial):
            _copy(manifest, source, partial, report_progress)
            # The pipeline may have started meanwhile, and must not while the folders are exchanged.
            with _require_idle(target):
                before = _put_in_place(partial, target, filled)
    except OSError as error:
        if isinstance(error, faults.InjectedFault):
            raise
        if (partial / MARK).exists():
            # On a full disk it would be in everybody's way.
            shutil.rmtree(partial, ignore_errors=True)
        raise PenstockError(
            "PEN-BAK-012",
            f"{source} was not restored to {target}: {error}.",
            "Make room or fix the permissions, then start it again; `data_dir` is as it was.",
        ) from error
    try:
        routes = resume_routes(config, operator)
    except PenstockError as error:
        # The data is in place, and the result must say where the former data is.
        routes = [ResumedRoute(route, unknown=str(error)) for route in config.routes]
    return Restored(manifest, before, left, routes)


def resume_routes(config: PipelineConfig, operator: Operator) -> list[ResumedRoute]:
    """Bring every route in line with what its destination has."""
    pipeline = Pipeline.open(config)
    try:
        return [_resume(pipeline, route, operator) for route in config.routes]
    finally:
        pipeline.ledger.close()


def _resume(pipeline: Pipeline, route: str, operator: Operator) -> ResumedRoute:
    history, sources = pipeline.history(), pipeline.sources_of(route)
    try:
        plan = pipeline.plan(route)
        destination = plan.destination()
        try:
            history.check_local_state(route, sources)
            history.check_target(route, sources, destination)
        except ContradictionError:
            done = adopt(pipeline, route, route, operator)
            adopted = sum(max(0, end - start) for start, end in done.stretches.values())
            return ResumedRoute(route, adopted, replayed=done.replayed)
        missing = history.find_missing(route, destination, plan.holding is not None)
        if missing is None:
            return ResumedRoute(route)
        return ResumedRoute(route, missing=f"the destination lacks {missing.what}. {missing.how_to_deliver}".strip())
    except PenstockError as error:
        return ResumedRoute(route, unknown=str(error))


def _clear(partial: Path, target: Path) -> Path | None:
    """Remove what a killed restore has left. If it was killed before it could name the former data, name that now and
    return its path."""
    (target / MARK).unlink(missing_ok=True)
    if not partial.exists():
        return None
    with claim_folder(partial):
        if not (partial / MARK).exists() and any(partial.iterdir()):
            _leave_others(partial, target)
            return _set_aside(partial, target)
        shutil.rmtree(partial)
    return None


def _copy(manifest: Manifest, source: Path, partial: Path, report_progress: ProgressCallback) -> None:
    """Copy every file, and compare it with the manifest meanwhile."""
    (partial / MARK).touch(mode=0o600)
    done, total = 0, manifest.bytes
    for name, entry in manifest.files.items():
        try:
            found = copy_file(source / name, partial / name)
        except FileNotFoundError:
            found = None
        if found != entry:
            shutil.rmtree(partial, ignore_errors=True)
            what = "is missing" if found is None else "is not what it was when the backup was made"
            raise PenstockError(
                "PEN-BAK-013", f"{source / name} {what}.", "Nothing was restored. Restore from another backup."
            )
        done += entry.bytes
        report_progress(done, total)
        faults.reach("restore.file_copied")
    log = LocalLog(Layout(partial).log)
    for partition in log.partitions():
        # One that nothing was written to yet has no files.
        log.partition_dir(partition).mkdir(exist_ok=True, mode=0o700)
    sync_folders(partial)


def _put_in_place(partial: Path, target: Path, filled: bool) -> Path | None:
    faults.reach("restore.before_rename")
    before = None
    if filled:
        _exchange(partial, target)
        faults.reach("restore.exchanged")
        _leave_others(partial, target)
        before = _set_aside(partial, target)
    else:
        partial.replace(target)
    (target / MARK).unlink()
    sync_directory(target.parent)
    return before


def _leave_others(folder: Path, target: Path) -> None:
    """Keep in ``data_dir`` what no backup has: the archive, which is a destination, and foreign files."""
    replaced = {path.name for path in Layout(folder).own} - {Layout(folder).archive.name}
    for path in sorted(folder.iterdir()):
        if path.name not in replaced and not os.path.lexists(target / path.name):
            path.rename(target / path.name)


def _set_aside(folder: Path, target: Path) -> Path:
    name = f"{target.name}.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    names = (name, *(f"{name}-{number}" for number in range(2, 1000)))
    before = next(path for path in map(target.with_name, names) if not path.exists())
    folder.rename(before)
    sync_directory(target.parent)
    return before


def _exchange(one: Path, other: Path) -> None:
    """Exchange two folders atomically; by renames where the system has no such call."""
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


@contextmanager
def _require_idle(target: Path) -> Iterator[None]:
    """Lock the data against every process inside the block. Raises ``PenstockError`` if one works on it."""
    layout = Layout(target)
    locks = [layout.run / "engine.lock", *(directory / "lock" for directory in layout.log.glob("[0-9]*"))]
    with ExitStack() as held:
        for path in locks:
            if not path.parent.is_dir():
                continue
            lock = try_lock(path)
            if lock is None:
                pid = engine_pid(layout)
                who = "a source writes" if path.name == "lock" else f"the pipeline runs{f' (pid {pid})' if pid else ''}"
                raise PenstockError("PEN-BAK-014", f"{who} on {target}.", "Stop the pipeline first.")
            held.callback(os.close, lock)
        yield
