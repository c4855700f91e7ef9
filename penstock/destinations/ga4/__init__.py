"""Destination ``ga4``: events to Google Analytics 4, by its measurement protocol."""

from penstock.registry import Component, Kind

component = Component(
    Kind.DESTINATION,
    "ga4",
    "Sends events to Google Analytics 4 by its measurement protocol, at least once.",
    config="penstock.destinations.ga4.config:Ga4Config",
    implementation="penstock.destinations.ga4.destination:Ga4Destination",
)
