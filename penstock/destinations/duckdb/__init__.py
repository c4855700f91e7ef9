"""Destination ``duckdb``: typed tables in a DuckDB file, each batch exactly once."""

from penstock.registry import Component, Kind

component = Component(
    Kind.DESTINATION,
    "duckdb",
    "Loads records into typed tables of a DuckDB file, each batch exactly once.",
    config="penstock.destinations.duckdb.config:DuckdbConfig",
    implementation="penstock.destinations.duckdb.destination:DuckdbDestination",
)
