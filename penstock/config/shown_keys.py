"""Which keys of a file may be repeated in a message: those that look like one.

Where a name was forgotten (``{type: postgres, postgresql://me:secret@db/x}``) or a colon (``{client_secret=...}``),
YAML takes the value for a key. It may be a secret, and nothing but its form tells it from a misspelt name.
"""

from __future__ import annotations

import re

from penstock.redaction import SECRET_NAME

HIDDEN = "(not shown)"
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_LONGEST = 40
_TELLTALE = re.compile(r"=|@|:/")
_LONGEST_PART = 80


def is_shown(key: str) -> bool:
    """Whether an unknown key looks like a key, and may be repeated."""
    return _KEY.fullmatch(key) is not None and len(key) <= _LONGEST


def quoted(key: str) -> str:
    """The key between quotes, or nothing that tells what it is."""
    return f"'{key}'" if is_shown(key) else HIDDEN


def path_part(key: str) -> str:
    """The key as a part of the path that says where a problem is. Keys that people make up (routes, paths of fields)
    are shown unless they have what addresses and settings have."""
    names_a_secret = SECRET_NAME.search(key) is not None and not is_shown(key)
    return HIDDEN if names_a_secret or _TELLTALE.search(key) or len(key) > _LONGEST_PART else key
