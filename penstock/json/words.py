"""Reads and writes eight bytes at a time, so that the scanners run at memory speed.

numba has no unaligned load of a word from a byte array and no count of trailing zeros, so both are given to it here as
two machine instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.cgutils import pointer_add
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

if TYPE_CHECKING:
    import numpy.typing as npt

    def load_word(buf: npt.NDArray[np.uint8], i: int) -> np.uint64:
        """The bytes ``buf[i:i + 8]`` as one little-endian word. The caller has made sure that they exist."""

    def store_word(buf: npt.NDArray[np.uint8], i: int, word: np.uint64) -> None:
        """Write ``word`` to ``buf[i:i + 8]``. The caller has made sure that there is room."""

    def first_marked_byte(marks: np.uint64) -> int:
        """Which byte of a word is the first to have its highest bit set; the word is not zero."""

else:

    @intrinsic
    def load_word(typing_context: Any, buf: Any, i: Any) -> Any:
        if not (isinstance(buf, types.Array) and buf.dtype == types.uint8 and buf.layout == "C"):
            return None

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = make_array(signature.args[0])(context, builder, arguments[0])
            place = pointer_add(builder, array.data, arguments[1], ir.IntType(64).as_pointer())
            word = builder.load(place)
            word.align = 1
            return word

        return types.uint64(buf, types.intp), generate

    @intrinsic
    def store_word(typing_context: Any, buf: Any, i: Any, word: Any) -> Any:
        if not (isinstance(buf, types.Array) and buf.dtype == types.uint8 and buf.layout == "C" and buf.mutable):
            return None

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = make_array(signature.args[0])(context, builder, arguments[0])
            place = pointer_add(builder, array.data, arguments[1], ir.IntType(64).as_pointer())
            builder.store(arguments[2], place).align = 1
            return context.get_dummy_value()

        return types.void(buf, types.intp, types.uint64), generate

    @intrinsic
    def first_marked_byte(typing_context: Any, marks: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            zeros = builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))
            return builder.lshr(zeros, ir.Constant(ir.IntType(64), 3))

        return types.intp(types.uint64), generate


LOW_BITS = np.uint64(0x0101010101010101)
HIGH_BITS = np.uint64(0x8080808080808080)
QUOTES = np.uint64(0x2222222222222222)
BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
SPACES = np.uint64(0x2020202020202020)
