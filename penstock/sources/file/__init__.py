"""Reads NDJSON files, to their end or as they grow."""

from penstock.registry import Component, Kind

component = Component(
    Kind.SOURCE,
    "file",
    "Reads NDJSON files line by line, each line once, to their end or as they grow.",
    config="penstock.sources.file.config:FileConfig",
    implementation="penstock.sources.file.source:FileSource",
)
