"""The long form. Prints what was killed and how source and mirrors compare; exits 1 if they differ."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.chaos.mirror.run import NAMED_POINTS, chaos


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to write and kill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=150, help="transactions per second")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers do not stay behind
    folder = Path(tempfile.mkdtemp(prefix="penstock-mirror-"))
    result = chaos(
        folder, options.seconds, options.seed, options.rate, points=NAMED_POINTS, say=partial(print, flush=True)
    )
    print(f"kills: {dict(result.kills)} in {result.seconds:.0f} s")
    print(f"{result.transactions:,} transactions (pgbench was cut off {result.interrupted} times),")
    print(f"{result.records:,} records in the log, batches: {dict(result.batches)}")
    print(f"rows: {dict(result.rows)}")
    for route, book in result.books.items():
        print(
            f"{route}: " + ", ".join(f"{name} {book[name]:,}" for name in ("in", "loaded", "skipped", "failed", "lag"))
        )
    faults = result.faults()
    print("\n".join(faults))
    print(f"NOT EQUAL, see {folder}" if faults else "source and mirrors are equal, row by row")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
