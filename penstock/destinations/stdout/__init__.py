"""Destination ``stdout``: prints records, one JSON line each."""

from penstock.registry import Component, Kind

component = Component(
    Kind.DESTINATION,
    "stdout",
    "Prints records to standard output, one JSON line each.",
    config="penstock.destinations.stdout.config:StdoutConfig",
    implementation="penstock.destinations.stdout.destination:StdoutDestination",
)
