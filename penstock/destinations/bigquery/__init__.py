"""Destination ``bigquery``: typed tables in Google BigQuery, each batch exactly once."""

from penstock.registry import Component, Kind

component = Component(
    Kind.DESTINATION,
    "bigquery",
    "Typed tables in Google BigQuery, loaded from Parquet, exactly once.",
    config="penstock.destinations.bigquery.config:BigqueryConfig",
    implementation="penstock.destinations.bigquery.destination:BigqueryDestination",
)
