"""Who may read what a pipeline keeps: its own user, unless the config's ``umask`` says more.

The mask goes over every file and folder that its processes make, in ``data_dir`` and elsewhere, also those of the JVM.
What an earlier release left more open is closed at the start.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from penstock.engine.layout import Layout


def tighten(layout: Layout, mask: int) -> None:
    """Take away what the mask does not leave, from ``data_dir`` and from what is ours in it. What belongs to another
    user stays as it is: ``penstock doctor`` names it."""
    for path in [layout.root] if not is_open(layout.root, mask) else [layout.root, *_ours(layout)]:
        with suppress(OSError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & mask:
                path.chmod(mode & ~mask)


def is_open(root: Path, mask: int) -> bool:
    """Whether others can look into a folder that the mask closes."""
    try:
        return bool(stat.S_IMODE(root.stat().st_mode) & mask)
    except OSError:
        return False


def _ours(layout: Layout) -> Iterator[Path]:
    """Everything that Penstock made there; a ``data_dir`` may hold things of others. Links are not followed."""
    for top in layout.own:
        if top.is_symlink():
            continue
        yield top
        for folder, folders, files in os.walk(top):
            yield from (path for name in (*folders, *files) if not (path := Path(folder, name)).is_symlink())
