"""How functions are compiled with numba: the one place that says so. The compiled code is cached beside the package, by
the sources that it was made of.

Importing this module loads the compiler, which takes a third of a second: code that only reads configs must not do so.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from numba import config, njit
from numba.core.types import unliteral

from penstock.compiled.source_cache import cache_folder


def without_counting() -> dict[str, bool]:
    """The option that leaves reference counts alone. numba has it for itself: one that no longer knows it is asked for
    nothing, and compiles what is as right, and slower."""
    try:
        from numba.core.compiler import Flags
        from numba.core.registry import cpu_target

        cpu_target.options.parse_as_flags(Flags(), _UNCOUNTED)  # type: ignore[no-untyped-call]
    except (ImportError, AttributeError, KeyError, TypeError):
        return {}
    return dict(_UNCOUNTED)


_UNCOUNTED = {"_nrt": False}


def take_constants_as_values(function: Any) -> Any:
    """A compiled function, compiled once for all constants that compiled callers give it: by itself numba does so for
    each. Machine code loses nothing by it, because callers take in what they call."""
    find_template = getattr(function, "get_call_template", None)
    if find_template is not None:
        as_value: Callable[[Any], Any] = unliteral
        function.get_call_template = lambda args, kws: find_template(
            [as_value(each) for each in args], {name: as_value(each) for name, each in kws.items()}
        )
    return function


if TYPE_CHECKING:
    _Function = TypeVar("_Function", bound=Callable[..., Any])

    def compiled(function: _Function) -> _Function: ...

    def borrowing(function: _Function) -> _Function: ...

    def inlined(function: _Function) -> _Function: ...

else:
    _one_at_a_time = Lock()

    def _compiler(**options):
        def compile_later(function):
            # numba asks for its folder when a function is decorated. What others compile is none of our business.
            with _one_at_a_time:
                chosen = config.CACHE_DIR
                config.CACHE_DIR = str(cache_folder(function.__code__.co_filename, chosen) or chosen)
                try:
                    return take_constants_as_values(njit(cache=True, nogil=True, **options)(function))
                finally:
                    config.CACHE_DIR = chosen

        return compile_later

    # Said in so many words: what a function does not say it has from the one that it is compiled for.
    compiled = _compiler(**dict.fromkeys(without_counting(), True))
    # For functions that only read and fill arrays that their caller keeps, and neither make nor return any: they do not
    # count references to them. Counting takes longer than all the work of a function that reads a few bytes.
    borrowing = _compiler(**without_counting())
    # For the few functions that run per token, where a call would cost as much as the work.
    inlined = _compiler(inline="always")

Bytes = npt.NDArray[np.uint8]
"""A buffer that compiled functions read or fill."""
