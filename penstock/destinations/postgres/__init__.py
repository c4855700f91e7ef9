"""The destination ``postgres``: typed tables in a PostgreSQL database, each event exactly once."""

from penstock.registry import Component, Kind

component = Component(
    Kind.DESTINATION,
    "postgres",
    "Typed tables in PostgreSQL, loaded by COPY, exactly once.",
    config="penstock.destinations.postgres.config:PostgresConfig",
    implementation="penstock.destinations.postgres.destination:PostgresDestination",
)
