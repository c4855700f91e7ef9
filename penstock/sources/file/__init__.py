"""Reads files of records, to their end or as they grow."""

from penstock.registry import Component, Kind

component = Component(
    Kind.SOURCE,
    "file",
    "Reads NDJSON, JSON arrays, CSV and Parquet, each record once, to the end of files or as they grow.",
    config="penstock.sources.file.config:FileConfig",
    implementation="penstock.sources.file.source:FileSource",
)
