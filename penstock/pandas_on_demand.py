"""Lets pyarrow do without pandas until somebody imports pandas.

pyarrow imports pandas with its first array, to know a Series when it sees one. That takes as long as all else that a
process imports, and tens of megabytes. Nobody has a Series before pandas is imported: then pyarrow is told.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

import pyarrow as pa
from pyarrow.lib import _pandas_api

_PANDAS = "pandas"


def defer_pandas() -> None:
    """For this process, and those that are forked from it."""
    if _PANDAS in sys.modules or find_spec(_PANDAS) is None:
        return
    too_old = ModuleType(_PANDAS)
    too_old.__version__ = "0"  # type: ignore[attr-defined]
    sys.modules[_PANDAS] = too_old
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pa.array([])
    finally:
        del sys.modules[_PANDAS]
    sys.meta_path.insert(0, _ImportWatch())


class _ImportWatch(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _PANDAS:
            return None
        sys.meta_path.remove(self)
        found = find_spec(_PANDAS)
        if found is not None and found.loader is not None:
            found.loader = _NotifyingLoader(found.loader)
        return found


class _NotifyingLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        # Asked for pandas, pyarrow looks for it again.
        assert _pandas_api.pd is module
