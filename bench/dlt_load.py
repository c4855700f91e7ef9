"""dlt loading lines of JSON into PostgreSQL or DuckDB: a process of its own, which prints the seconds that it took.

    python -m bench.dlt_load <lines> <folder> <postgres or duckdb> <where> <append or merge> <plain or tuned>

The clock runs while ``pipeline.run`` does; Python's start and dlt's imports are not in it. ``plain`` is dlt as its own
introduction uses it: events are yielded, everything else is left to it; only arrays are kept in their row, as ours are.
``tuned`` is what makes it faster and leaves the result as it is: whole pages of events, two processes that normalise,
two threads that load, bulk files that are not compressed instead of INSERT statements.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Literal

from bench.clickstream import FRAME

TABLE = "events"
DATASET = "dlt_events"
KEY = "eventn_ctx__event_id"
ARRAY = "tags"
WORKERS = 2
FILES = 8
"""Into so many files the events are cut, so that both processes have something to do."""


class Warehouse(StrEnum):
    POSTGRES = "postgres"
    DUCKDB = "duckdb"


FILE_FORMAT: Mapping[Warehouse, Literal["csv", "parquet"]] = {Warehouse.POSTGRES: "csv", Warehouse.DUCKDB: "parquet"}


class Settings(StrEnum):
    PLAIN = "plain"
    TUNED = "tuned"


class Disposition(StrEnum):
    APPEND = "append"
    MERGE = "merge"


def seconds_of_dlt(
    lines: Path,
    events: int,
    folder: Path,
    warehouse: Warehouse,
    where: str,
    disposition: Disposition,
    settings: Settings,
) -> float:
    """Run this module and give what it prints."""
    quiet = {"RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "ERROR", "DLT_DATA_DIR": str(folder)}
    fast = {
        "SOURCES__DATA_WRITER__FILE_MAX_ITEMS": str(max(FRAME, events // FILES)),
        "DATA_WRITER__DISABLE_COMPRESSION": "true",
        "NORMALIZE__WORKERS": str(WORKERS),
        "LOAD__WORKERS": str(WORKERS),
    }
    environment = {**os.environ, **quiet, **(fast if settings is Settings.TUNED else {})}
    command = [sys.executable, "-m", __name__, str(lines), str(folder), warehouse, where, disposition, settings]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"dlt did not load the events:\n{ended.stderr[-4000:]}")
    return float(ended.stdout.splitlines()[-1])


def main(
    lines: Path, folder: Path, warehouse: Warehouse, where: str, disposition: Disposition, settings: Settings
) -> None:
    import dlt
    import orjson

    tuned = settings is Settings.TUNED

    def pages() -> Iterator[list[dict[str, object]]]:
        with lines.open("rb") as file:
            while page := [orjson.loads(line) for line in islice(file, FRAME)]:
                yield page

    def one_by_one() -> Iterator[dict[str, object]]:
        with lines.open("rb") as file:
            yield from map(orjson.loads, file)

    events = dlt.resource(pages() if tuned else one_by_one(), name=TABLE, columns={ARRAY: {"data_type": "json"}})
    if disposition is Disposition.MERGE:
        events.apply_hints(write_disposition="merge", primary_key=KEY)
    destination = (
        dlt.destinations.postgres(where) if warehouse is Warehouse.POSTGRES else dlt.destinations.duckdb(where)
    )
    pipeline = dlt.pipeline(
        "bench", pipelines_dir=str(folder / "pipelines"), destination=destination, dataset_name=DATASET
    )
    began = time.perf_counter()
    pipeline.run(events, loader_file_format=FILE_FORMAT[warehouse] if tuned else None).raise_on_failed_jobs()
    print(time.perf_counter() - began)


if __name__ == "__main__":
    lines_file, work_folder, target, address, how, with_what = sys.argv[1:]
    main(Path(lines_file), Path(work_folder), Warehouse(target), address, Disposition(how), Settings(with_what))
