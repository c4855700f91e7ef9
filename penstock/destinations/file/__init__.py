"""Destination ``file``: NDJSON, CSV or Parquet files that appear whole or not at all."""

from penstock.registry import Component, Kind

component = Component(
    Kind.DESTINATION,
    "file",
    "Writes NDJSON, CSV or Parquet files, each of which appears whole or not at all.",
    config="penstock.destinations.file.config:FileConfig",
    implementation="penstock.destinations.file.destination:FileDestination",
)
