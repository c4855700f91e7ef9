"""Destination ``sqlite``: rows of JSON in a SQLite file, exactly once."""

from penstock.registry import Component, Kind

component = Component(
    Kind.DESTINATION,
    "sqlite",
    "Loads events as JSON into a table of a SQLite file, exactly once.",
    config="penstock_example.sqlite.config:SqliteConfig",
    implementation="penstock_example.sqlite.destination:SqliteDestination",
)
