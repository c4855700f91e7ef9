"""JSON paths as text: ``/eventn_ctx/user/id``.

The leading slash is optional when reading and always written. A slash inside a key is ``~1`` and a tilde ``~0``, as in
a JSON pointer, so that text and keys convert without loss. ``/`` and the empty text are the document itself.
"""

from __future__ import annotations

from collections.abc import Sequence

Path = tuple[str, ...]


def parse_path(text: str) -> Path:
    bare = text.removeprefix("/")
    if not bare:
        return ()
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in bare.split("/"))


def format_path(keys: Sequence[str]) -> str:
    return "/" + "/".join(key.replace("~", "~0").replace("/", "~1") for key in keys)
