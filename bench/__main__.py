"""``python -m bench [names ...] [--quick]``: run benchmarks and print their figures as a Markdown table.

``name/section`` runs one section of a benchmark that has some.

Ends with 1 if a benchmark could not be run. A goal that was missed is a finding, not a failure.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path

from bench.measure import Comparison, Setting, machine, markdown

BENCHMARKS = (
    "start",
    "log_append",
    "log_open",
    "spark_read",
    "collector",
    "load",
    "events_to_postgres",
    "transport",
    "mirror",
    "waiting",
    "conflation",
    "state_rows",
    "sessions",
    "sampling",
    "latency",
    "memory",
)
SECTIONS = {
    "transport": ("files", "copy", "changes", "verbs"),
    "sampling": ("route", "scan", "pending", "intake"),
    "sessions": ("pipe", "work"),
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Penstock, a peer and the limit.")
    known = [*BENCHMARKS, *(f"{name}/{section}" for name, sections in SECTIONS.items() for section in sections)]
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of: {', '.join(known)}; all if none")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, not how fast it is")
    parser.add_argument("--folder", type=Path, default=_disk(), help="a folder on a real disk (default: %(default)s)")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in known]
    if unknown:
        parser.error(f"there is no benchmark '{unknown[0]}'; there are: {', '.join(known)}")
    title = machine()
    found, broken = measured(given.names or BENCHMARKS, given.folder, given.quick)
    print(f"{title}{'; quick sizes' if given.quick else ''}\n\n{markdown(found)}")
    if broken:
        print(f"\nCould not be run: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


def measured(names: list[str] | tuple[str, ...], parent: Path, quick: bool) -> tuple[list[Comparison], list[str]]:
    """The figures of the benchmarks that ran, and the names of those that did not. One does not stop the others."""
    found: list[Comparison] = []
    broken: list[str] = []
    for name in names:
        module, _, section = name.partition("/")
        folder = Path(tempfile.mkdtemp(prefix=f"penstock-bench-{module}-", dir=parent))
        began = time.monotonic()
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            found += import_module(f"bench.{module}").run(Setting(folder, quick, section or None))
        except Exception:
            traceback.print_exc()
            broken.append(name)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return found, broken


def _disk() -> Path:
    """Where a sync reaches a disk: /tmp is often in memory."""
    lasting = Path("/var/tmp")
    return lasting if lasting.is_dir() else Path(tempfile.gettempdir())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
