"""dlt loading lines of JSON into PostgreSQL or DuckDB: a process of its own, which prints the seconds that it took.

    python -m bench.dlt_load <lines> <folder> <postgres or duckdb> <where> <append or merge>

The clock runs while ``pipeline.run`` does; Python's start and dlt's imports are not in it. What makes dlt faster and
does not change what arrives is on: orjson, whole pages of events, two processes that normalise, two threads that load,
bulk files that are not compressed instead of INSERT statements, arrays in their row instead of in a table of their own.
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


class Disposition(StrEnum):
    APPEND = "append"
    MERGE = "merge"


def seconds_of_dlt(
    lines: Path, events: int, folder: Path, warehouse: Warehouse, where: str, disposition: Disposition
) -> float:
    """Run this module and give what it prints."""
    settings = {
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "RUNTIME__LOG_LEVEL": "ERROR",
        "DLT_DATA_DIR": str(folder),
        "SOURCES__DATA_WRITER__FILE_MAX_ITEMS": str(max(FRAME, events // FILES)),
        "DATA_WRITER__DISABLE_COMPRESSION": "true",
        "NORMALIZE__WORKERS": str(WORKERS),
        "LOAD__WORKERS": str(WORKERS),
    }
    command = [sys.executable, "-m", __name__, str(lines), str(folder), warehouse, where, disposition]
    ended = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"dlt did not load the events:\n{ended.stderr[-4000:]}")
    return float(ended.stdout.splitlines()[-1])


def main(lines: Path, folder: Path, warehouse: Warehouse, where: str, disposition: Disposition) -> None:
    import dlt
    import orjson

    def pages() -> Iterator[list[dict[str, object]]]:
        with lines.open("rb") as file:
            while page := [orjson.loads(line) for line in islice(file, FRAME)]:
                yield page

    events = dlt.resource(pages(), name=TABLE, columns={ARRAY: {"data_type": "json"}})
    if disposition is Disposition.MERGE:
        events.apply_hints(write_disposition="merge", primary_key=KEY)
    destination = (
        dlt.destinations.postgres(where) if warehouse is Warehouse.POSTGRES else dlt.destinations.duckdb(where)
    )
    pipeline = dlt.pipeline(
        "bench", pipelines_dir=str(folder / "pipelines"), destination=destination, dataset_name=DATASET
    )
    began = time.perf_counter()
    pipeline.run(events, loader_file_format=FILE_FORMAT[warehouse]).raise_on_failed_jobs()
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Warehouse(sys.argv[3]), sys.argv[4], Disposition(sys.argv[5]))
