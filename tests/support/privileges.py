"""What root may do and a service may not: given up for one thread, so that tests of unreadable files work as root."""

from __future__ import annotations

import ctypes

_VERSION = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1 << 1, 1 << 2


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Capabilities(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def obey_file_modes() -> None:
    """From now on this thread may read a file only if its mode says so."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(_VERSION, 0), (_Capabilities * 2)()
    if libc.capget(ctypes.byref(header), sets) == 0:
        sets[0].effective &= ~(_DAC_OVERRIDE | _DAC_READ_SEARCH)
        if libc.capset(ctypes.byref(header), sets) == 0:
            return
    raise OSError(ctypes.get_errno(), "the rights of this thread cannot be changed")
