"""What makes a file outlive a power cut, beyond the sync of its own bytes, and whether a folder takes files at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable: a new file is only safe once its name is."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(directory: Path) -> None:
    """Create a directory and whatever is missing above it, durably."""
    missing = [d for d in (directory, *directory.parents) if not d.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)


def check_folder(folder: Path) -> str:
    """Create a folder if it is missing, and a file in it for a moment; describes the folder, in one line. Raises
    ``OSError``."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".check-"):
        pass
    return f"{folder} can be written, {shutil.disk_usage(folder).free / 2**30:,.1f} GiB free"
