"""The destination ``clickhouse``: typed tables in a ClickHouse database; a batch that comes again is left out."""

from penstock.registry import Component, Kind

component = Component(
    Kind.DESTINATION,
    "clickhouse",
    "Typed tables in ClickHouse, loaded from Arrow; a batch that comes again is recognised.",
    config="penstock.destinations.clickhouse.config:ClickhouseConfig",
    implementation="penstock.destinations.clickhouse.destination:ClickhouseDestination",
)
