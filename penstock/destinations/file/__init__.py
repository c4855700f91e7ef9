"""Destination ``file``: NDJSON, CSV or Parquet files that appear whole or not at all."""

from penstock.registry import built_in

component = built_in(__name__, "Writes NDJSON, CSV or Parquet files, each of which appears whole or not at all.")
