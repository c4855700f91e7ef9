"""Functions that numba compiles: the one place that says how. What it compiled is kept beside the package.

A module that imports this one brings the compiler in, which takes a third of a second: nothing that reads configs may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable

    _Function = TypeVar("_Function", bound=Callable[..., Any])

    def compiled(function: _Function) -> _Function: ...

    def inlined(function: _Function) -> _Function: ...

else:
    compiled = njit(cache=True, nogil=True)
    # For the few functions that run per token: a call costs as much as their work.
    inlined = njit(cache=True, nogil=True, inline="always")

Bytes = npt.NDArray[np.uint8]
"""A buffer that compiled functions read or fill."""
