"""How functions are compiled with numba: the one place that says so. The compiled code is cached beside the package.

Importing this module loads the compiler, which takes a third of a second: code that only reads configs must not do so.
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

    def borrowing(function: _Function) -> _Function: ...

    def inlined(function: _Function) -> _Function: ...

else:
    compiled = njit(cache=True, nogil=True)
    # For functions that only read and fill arrays that their caller keeps, and neither make nor return any: they do not
    # count references to them. Counting takes longer than all the work of a function that reads a few bytes.
    borrowing = njit(cache=True, nogil=True, _nrt=False)
    # For the few functions that run per token, where a call would cost as much as the work.
    inlined = njit(cache=True, nogil=True, inline="always")

Bytes = npt.NDArray[np.uint8]
"""A buffer that compiled functions read or fill."""
