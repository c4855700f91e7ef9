"""Transport: what goes from one place through the log to another, and what looks at the log. Section by section.

``files``: an NDJSON file through the log into files. ``copy``: a PostgreSQL table into the log. ``changes``: changes of
a PostgreSQL table into a mirror in DuckDB, sustained. ``verbs``: every verb of the command line that reads the log.

    python -m bench transport            # all of them
    python -m bench transport/changes    # one

Each module says what is measured and how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from bench.measure import Comparison, Setting
from bench.transport import changes, copying, files, verbs

SECTIONS: Mapping[str, Callable[[Setting], Iterator[Comparison]]] = {
    "files": files.run,
    "copy": copying.run,
    "changes": changes.run,
    "verbs": verbs.run,
}


def run(setting: Setting) -> list[Comparison]:
    names = SECTIONS if setting.section is None else [setting.section]
    return [comparison for name in names for comparison in SECTIONS[name](setting)]
