"""Options of the destination ``file``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config.component import DestinationConfig
from penstock.config.value_types.config_paths import LocalPath


class FileConfig(DestinationConfig):
    type: Literal["file"] = Field(default="file", description="Selects this destination.")
    path: LocalPath = Field(description="Folder that the files go to; made if it is missing.")
    format: Literal["ndjson", "csv", "parquet"] = Field(
        default="ndjson",
        description="`ndjson`: one JSON document per line. `csv`: a header line, then a line per record."
        " `parquet`: typed columns.",
    )
    columns: Literal["data", "record"] = Field(
        default="data",
        description="`data`: the record's data alone (in CSV and Parquet flattened to one column per field). `record`:"
        " also its partition, offset, timestamp, namespace, op, mode, key and headers.",
    )
    compression: Literal["none", "gzip", "zstd"] | None = Field(
        default=None,
        description="How the files are compressed; by default `none` for NDJSON and CSV, `zstd` for Parquet.",
    )
