"""Where compiled code is kept: for each module in a folder that is named after the sources it was made of.

numba looks at the file of a function only. But compiled code holds the code of what it calls and the constants that it
uses, wherever they come from: after an upgrade in place, it would go on as before. Here the name of the folder is a
digest of the module and of all modules of the package that it imports, directly or through others. A folder whose
sources have changed is removed when the next one is made.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from functools import cache
from os.path import isfile
from pathlib import Path
from typing import NamedTuple

PACKAGE = str(Path(__file__).parents[1])
_IMPORTS = re.compile(rb"^(?:from|import) +(penstock[\w.]*)(?: +import +(\([^)]*\)|[^\n]*))?", re.MULTILINE)
_NAMES = re.compile(r"\w+")


def cache_folder(file: str, chosen: str) -> Path | None:
    """The folder for the compiled functions of a file, made if it is not there; None if there is no place for it.
    ``chosen`` is where the user wants such folders; empty if that is left to us."""
    root = _root(chosen)
    if root is None:
        return None
    name = file.removeprefix(f"{PACKAGE}/").removesuffix(".py").replace("/", ".")
    folder = root / f"{name}-{sources_digest(file)}"
    if not folder.exists():
        for stale in root.glob(f"{name}-*"):
            shutil.rmtree(stale, ignore_errors=True)
        folder.mkdir(exist_ok=True)
    return folder


@cache
def sources_digest(file: str) -> str:
    """Of the texts of a module and of all that it imports from the package."""
    digest = hashlib.sha256()
    for each in sorted(_reached(file)):
        digest.update(f"{each.removeprefix(PACKAGE)}\0".encode())
        digest.update(_source(each).digest)
    return digest.hexdigest()[:16]


@cache
def _root(chosen: str) -> Path | None:
    """Beside the package if that can be written to, else in the user's cache. A folder that several installations share
    has a part for each."""
    mine = f"compiled-{hashlib.sha256(PACKAGE.encode()).hexdigest()[:8]}"
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    shared = (
        [Path(chosen) / mine] if chosen else [Path(PACKAGE, "__pycache__", "compiled"), cache_home / "penstock" / mine]
    )
    for root in shared:
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(root, os.W_OK):
            return root
    return None


def _reached(file: str) -> set[str]:
    found, ahead = {file}, [file]
    while ahead:
        new = _source(ahead.pop()).imported - found
        found |= new
        ahead += new
    return found


class _Source(NamedTuple):
    digest: bytes
    imported: frozenset[str]
    """The files of the modules of the package that it imports, where the file begins: an import inside a function is
    nothing that compiled code could use."""


@cache
def _source(file: str) -> _Source:
    text = Path(file).read_bytes()
    imported = [path for module, names in _IMPORTS.findall(text) for path in _files(module.decode(), names.decode())]
    return _Source(hashlib.sha256(text).digest(), frozenset(imported))


def _files(module: str, names: str) -> list[str]:
    """Of a module; of a folder, what is taken out of it, and the folder's own."""
    place = PACKAGE + module.removeprefix("penstock").replace(".", "/")
    if isfile(f"{place}.py"):
        return [f"{place}.py"]
    inside = [path for name in _NAMES.findall(names) for path in _files(f"{module}.{name}", "")]
    return [f"{place}/__init__.py", *inside] if isfile(f"{place}/__init__.py") else []
