"""Who may read a pipeline's files: its own user, unless the config's ``umask`` allows more.

The mask applies to every file and folder that its processes create, in ``data_dir`` and elsewhere, also the JVM. Files
that an earlier release left more open are restricted at the start.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from penstock.engine.layout import Layout


def tighten(layout: Layout, mask: int) -> None:
    """Remove the rights that the mask forbids from ``data_dir`` and from what is ours in it. Files of another user stay
    as they are: ``penstock doctor`` names them."""
    for path in [layout.root] if not is_open(layout.root, mask) else [layout.root, *_ours(layout)]:
        with suppress(OSError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & mask:
                path.chmod(mode & ~mask)


def is_open(root: Path, mask: int) -> bool:
    """Whether a folder has rights that the mask forbids."""
    try:
        return bool(stat.S_IMODE(root.stat().st_mode) & mask)
    except OSError:
        return False


def _ours(layout: Layout) -> Iterator[Path]:
    """Everything that Penstock made there; a ``data_dir`` may hold other files too. Does not follow links."""
    for top in layout.own:
        if top.is_symlink():
            continue
        yield top
        for folder, folders, files in os.walk(top):
            yield from (path for name in (*folders, *files) if not (path := Path(folder, name)).is_symlink())
