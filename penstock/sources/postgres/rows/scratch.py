"""Memory that is reused for each block: grown when needed, freed after a block of an unusual size."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_ORDINARY = 64 * 2**20


class Scratch:
    """Arrays by name. Asking for an array again overwrites its content. For one thread."""

    def __init__(self) -> None:
        self._arrays: dict[str, npt.NDArray[Any]] = {}

    def bytes(self, name: str, size: int) -> npt.NDArray[np.uint8]:
        return self._array(name, size, np.uint8)

    def int32(self, name: str, size: int) -> npt.NDArray[np.int32]:
        return self._array(name, size, np.int32)[:size]

    def int64(self, name: str, size: int) -> npt.NDArray[np.int64]:
        return self._array(name, size, np.int64)[:size]

    def _array(self, name: str, size: int, kind: type[Any]) -> npt.NDArray[Any]:
        found = self._arrays.get(name)
        if found is None or len(found) < size or len(found) > max(4 * size, _ORDINARY):
            found = self._arrays[name] = np.empty(size + size // 4, kind)
        return found
