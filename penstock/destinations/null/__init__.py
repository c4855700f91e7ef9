"""Destination ``null``: counts what reaches it and keeps nothing."""

from penstock.registry import Component, Kind

component = Component(
    Kind.DESTINATION,
    "null",
    "Counts records and drops them: to try a route, or to measure everything before the destination.",
    config="penstock.destinations.null.config:NullConfig",
    implementation="penstock.destinations.null.destination:NullDestination",
)
