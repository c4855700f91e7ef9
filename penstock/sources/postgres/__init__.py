"""Reads tables of a PostgreSQL database: a consistent copy first, then every change, each once."""

from penstock.registry import Component, Kind

component = Component(
    Kind.SOURCE,
    "postgres",
    "Copies PostgreSQL tables and follows their changes by logical replication, each once.",
    config="penstock.sources.postgres.config:PostgresSourceConfig",
    implementation="penstock.sources.postgres.source:PostgresSource",
)
