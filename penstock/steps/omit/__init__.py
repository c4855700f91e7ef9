"""``omit``: take fields out of every record."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "omit",
    "takes fields out of every record",
    config="penstock.steps.omit.config:OmitConfig",
    implementation="penstock.steps.omit.step:Omit",
)
