"""Destination ``duckdb``: typed tables in a DuckDB file, each batch exactly once."""

from penstock.registry import built_in

component = built_in(__name__, "Loads records into typed tables of a DuckDB file, each batch exactly once.")
