"""``lookup``: add what is known about an address or a user agent."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "lookup",
    "adds what is known about an IP address or a user agent",
    config="penstock.steps.lookup.config:LookupConfig",
    implementation="penstock.steps.lookup.step:Lookup",
)
