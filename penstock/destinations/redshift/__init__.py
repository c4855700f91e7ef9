"""Destination ``redshift``: typed tables in Amazon Redshift, each batch exactly once."""

from penstock.registry import Component, Kind

component = Component(
    Kind.DESTINATION,
    "redshift",
    "Typed tables in Amazon Redshift, loaded by COPY from S3, exactly once.",
    config="penstock.destinations.redshift.config:RedshiftConfig",
    implementation="penstock.destinations.redshift.destination:RedshiftDestination",
)
