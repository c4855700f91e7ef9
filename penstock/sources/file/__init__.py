"""Reads files of records, to their end or as they grow."""

from penstock.registry import built_in

component = built_in(
    __name__, "Reads NDJSON, JSON arrays, CSV and Parquet, each record once, to the end of files or as they grow."
)
