"""Destination ``file``: NDJSON or Parquet files that appear whole or not at all."""

from penstock.registry import Component, Kind

component = Component(
    Kind.DESTINATION,
    "file",
    "Writes NDJSON or Parquet files, each of which appears whole or not at all.",
    config="penstock.destinations.file.config:FileConfig",
    implementation="penstock.destinations.file.destination:FileDestination",
)
